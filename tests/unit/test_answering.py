"""Ends of requests, whenever they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from workers.answering import REMEMBERED, Answering


class Source:
    """Counts for ever, and knows whether it was begun and ended."""

    def __init__(self) -> None:
        self.begun = self.ended = False

    async def pieces(self) -> AsyncIterator[int]:
        self.begun = True
        try:
            for i in range(10_000):
                yield i
                await asyncio.sleep(0.001)
        finally:
            self.ended = True


async def read(answering: Answering, rid: str, pieces: AsyncIterator[int]) -> list[int]:
    return [piece async for piece in answering.answer(rid, pieces)]


async def test_an_end_reaches_what_is_under_way() -> None:
    answering, source, other = Answering(), Source(), Source()
    reading = asyncio.create_task(read(answering, "a", source.pieces()))
    reading_other = asyncio.create_task(read(answering, "b", other.pieces()))
    await asyncio.sleep(0.01)
    answering.end("a")
    await asyncio.wait([reading], timeout=1)
    assert reading.cancelled()
    assert source.ended
    assert not other.ended
    reading_other.cancel()


async def test_an_end_may_overtake_its_request() -> None:
    answering, source = Answering(), Source()
    answering.end("a")
    assert await read(answering, "a", source.pieces()) == []
    assert not source.begun


async def test_an_end_that_comes_too_late_ends_nobody_else() -> None:
    async def two() -> AsyncIterator[int]:
        yield 1
        yield 2

    answering = Answering()
    assert await read(answering, "a", two()) == [1, 2]
    for number in range(2 * REMEMBERED):
        answering.end(f"late {number}")
    assert await read(answering, "b", two()) == [1, 2]
    assert not answering._tasks
    assert len(answering._ended) == REMEMBERED
