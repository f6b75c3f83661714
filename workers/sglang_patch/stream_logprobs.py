"""All log probabilities of a chat's stream, those of tokens without text too."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any


async def send_all(
    original: Any, serving: Any, *, choice_logprobs: dict[str, Any] | None, **step: Any
) -> AsyncGenerator[str, None]:
    """Send the log probabilities of a step whose text is empty in an event of their own.

    SGLang drops them, unless the engine parses tool calls or thoughts. So whether a stream had those of its last token
    depended on whether that came in a run with others. Plain answers have them all.
    """
    sent = choice_logprobs is None
    async for event in original(serving, choice_logprobs=choice_logprobs, **step):
        # Quotes inside of generated text are escaped, so text cannot pass for this.
        sent = sent or '"logprobs":{' in event
        yield event
    if not sent:
        from sglang.srt.entrypoints.openai.sse_utils import build_sse_content

        yield build_sse_content(
            chunk_id=step["content"]["meta_info"]["id"],
            created=step["created"],
            model=step["request"].model,
            index=step["index"],
            logprobs=choice_logprobs,
        )
