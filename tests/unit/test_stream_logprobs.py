"""Log probabilities of tokens without text are in a stream too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from workers.sglang_patch.stream_logprobs import send_all

LOGPROBS = {"content": [{"token": "<|eos|>", "logprob": -0.5, "bytes": [], "top_logprobs": []}]}
WITHOUT = r'data: {"choices":[{"delta":{"content":"\"logprobs\":{"},"logprobs":null}]}' + "\n\n"
WITH = 'data: {"choices":[{"delta":{"content":"a"},"logprobs":{"content":[]}}]}\n\n'


async def sent(events: list[str], logprobs: dict[str, Any] | None) -> list[str]:
    async def original(_serving: object, **_step: object) -> AsyncIterator[str]:
        for event in events:
            yield event

    step = {"content": {"meta_info": {"id": "x"}}, "created": 1, "request": SimpleNamespace(model="tiny"), "index": 2}
    return [event async for event in send_all(original, object(), choice_logprobs=logprobs, **step)]


@pytest.mark.parametrize("events", [[], [WITHOUT]])
async def test_a_step_without_text_sends_its_log_probabilities(events: list[str]) -> None:
    *before, last = await sent(events, LOGPROBS)
    assert before == events
    (choice,) = json.loads(last.removeprefix("data: "))["choices"]
    assert (choice["index"], choice["logprobs"]) == (2, LOGPROBS)


@pytest.mark.parametrize(("events", "logprobs"), [([WITH], LOGPROBS), ([WITHOUT, WITH], LOGPROBS), ([WITHOUT], None), ([], None)])
async def test_nothing_is_sent_twice(events: list[str], logprobs: dict[str, Any] | None) -> None:
    assert await sent(events, logprobs) == events
