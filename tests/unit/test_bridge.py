import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from workers import bridge


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    yield other
    other.call_soon_threadsafe(other.stop)
    thread.join()


async def count(to: int) -> AsyncIterator[int]:
    for i in range(to):
        yield i
        await asyncio.sleep(0)


def test_a_call_runs_in_the_other_loop(loop: asyncio.AbstractEventLoop) -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert asyncio.run(bridge.call(loop, running)) is loop


def test_a_stream_arrives_whole_and_in_order(loop: asyncio.AbstractEventLoop) -> None:
    async def collect() -> list[int]:
        return [item async for batch in bridge.stream(loop, lambda: count(200)) for item in batch]

    assert asyncio.run(collect()) == list(range(200))


def test_an_error_comes_after_what_came_before_it(loop: asyncio.AbstractEventLoop) -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise KeyError("lost")

    async def collect(into: list[int]) -> None:
        async for batch in bridge.stream(loop, broken):
            into.extend(batch)

    got: list[int] = []
    with pytest.raises(KeyError, match="lost"):
        asyncio.run(collect(got))
    assert got == [1]


def test_a_reader_that_leaves_ends_the_source(loop: asyncio.AbstractEventLoop) -> None:
    ended = threading.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 0
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    async def leave() -> None:
        stream = bridge.stream(loop, endless)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(leave())
    assert ended.wait(5)


def test_a_source_that_is_cancelled_ends_the_stream(loop: asyncio.AbstractEventLoop) -> None:
    async def cancels_itself() -> AsyncIterator[int]:
        yield 1
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(10)

    async def collect() -> list[int]:
        return [item async for batch in bridge.stream(loop, cancels_itself) for item in batch]

    assert asyncio.run(collect()) == [1]
