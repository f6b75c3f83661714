"""`make serve` as a person sees it: how far the start is, or why it failed."""
