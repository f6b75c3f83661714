"""The fleet and its brain: pure Python and Ray, no sglang, no torch."""
