"""The controller: keeps the fleet whole, and exchanges directives for reports."""
