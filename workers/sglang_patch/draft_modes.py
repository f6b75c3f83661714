"""Environment variables that make depth 0 do what SGLang does by itself. For comparison in benchmarks and tests."""

WHOLE_EXTEND_ENV = "SPECFLEET_WHOLE_DRAFT_EXTEND"
"""Set to 1: the whole draft-extend at every step."""

SKIPPED_EXTEND_ENV = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
"""SGLang's own. Set to 1: nothing at all, so that the draft's KV cache stays unwritten."""
