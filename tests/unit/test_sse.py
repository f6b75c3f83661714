import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.messages.answer import ApiError
from serve_app import error_responses
from serve_app.error_responses import RequestError
from serve_app.relay import sse

STREAM = b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b"}]}\n\ndata: [DONE]\n\n'


def decode(body: bytes, cut: int) -> list[dict[str, Any]]:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), cut):
            yield body[start : start + cut]

    async def collect() -> list[dict[str, Any]]:
        return [event async for event in sse.events(pieces())]

    return asyncio.run(collect())


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_events_survive_any_cut(cut: int) -> None:
    assert [event["choices"][0]["text"] for event in decode(STREAM, cut)] == ["a", "b"]


@pytest.mark.parametrize(
    "error",
    [
        ApiError(status=502, message="engine lost", type="server_error", code="engine_lost"),
        ApiError(status=504, message="too late", type="server_error", code="deadline_exceeded"),
        ApiError(status=400, message="no text fits"),
    ],
)
def test_an_error_event_is_raised_as_it_was(error: ApiError) -> None:
    with pytest.raises(RequestError) as raised:
        decode(error_responses.event(error), 1000)
    assert raised.value.error == error
