"""`make serve` as a person sees it: a start that tells how far it is, and why it failed."""
