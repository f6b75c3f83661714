"""The context length of a draft model."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any


def derive_context_length(original: Any, config: Any, context_length: int | None) -> None:
    """Let a draft follow its target to the end of the target's context.

    Published EAGLE-3 drafts name the length that they were trained at, 2,048 tokens, and SGLang would refuse them. Beyond that
    length they draft worse; the fleet measures that, as it measures all acceptance.
    """
    from sglang.srt.environ import envs

    with envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.override(True) if config.is_draft_model else nullcontext():
        original(config, context_length)
