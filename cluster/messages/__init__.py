"""What crosses a process or comes from a user: directives, reports, answers, specs, status and settings."""
