"""Environment variables that make depth 0 do what SGLang alone would do. Benchmarks and tests compare with it."""

WHOLE_EXTEND_ENV = "SPECFLEET_WHOLE_DRAFT_EXTEND"
"""Set to 1: every step runs the whole draft-extend."""

SKIPPED_EXTEND_ENV = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
"""SGLang's own. Set to 1: steps at depth 0 leave the draft's KV cache unwritten."""
