import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from serve_app import sse
from serve_app.errors import RequestError

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


def test_an_error_event_is_raised() -> None:
    with pytest.raises(RequestError, match="engine lost"):
        decode(b'data: {"error":{"message":"engine lost"}}\n\n', 1000)
