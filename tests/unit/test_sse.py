import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from cluster.messages import errors
from serve_app.error_responses import RequestError
from serve_app.relay import sse

STREAM = b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b"}]}\n\n' + sse.DONE


async def pieces(body: bytes, cut: int) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), cut):
        yield body[start : start + cut]


@pytest.mark.parametrize("cut", [1, 7, 1000])
async def test_events_survive_any_cut(cut: int) -> None:
    events = [event async for event in sse.events(pieces(STREAM, cut))]
    assert [event["choices"][0]["text"] for event in events] == ["a", "b"]


async def test_a_whole_stream_passes_as_it_is() -> None:
    assert b"".join([piece async for piece in sse.with_error_event(pieces(STREAM, 7))]) == STREAM


async def test_a_stream_that_breaks_off_ends_with_its_error() -> None:
    error = errors.engine_lost("engine-0")

    async def breaks() -> AsyncGenerator[bytes, None]:
        yield b"data: {}\n\n"
        raise RequestError(error)

    first, last = [piece async for piece in sse.with_error_event(breaks())]
    assert first == b"data: {}\n\n"
    assert json.loads(last.removeprefix(b"data: ")) == error.body()
    assert last.endswith(b"\n\n")


async def test_whoever_stops_reading_ends_the_stream() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"data: {}\n\n"
        finally:
            ended.set()

    stream: Any = sse.with_error_event(endless())
    await anext(stream)
    await stream.aclose()
    assert ended.is_set()
