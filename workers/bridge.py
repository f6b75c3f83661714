"""From one thread's event loop to another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def call(loop: asyncio.AbstractEventLoop, start: Callable[[], Awaitable[T]]) -> T:
    """Await `start()` in `loop`, from another loop."""

    async def run() -> T:
        return await start()

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), loop))


async def stream(loop: asyncio.AbstractEventLoop, start: Callable[[], AsyncIterator[T]]) -> AsyncIterator[list[T]]:
    """Iterate over `start()` in `loop`, from another loop.

    Yields what has come since the last time, at least one item: a slow reader takes fewer, larger pieces. Ends where the task
    in `loop` is cancelled.
    """
    here = asyncio.get_running_loop()
    items: list[T] = []
    news = asyncio.Event()
    ended = False

    def arrive(item: T) -> None:
        items.append(item)
        news.set()

    def end() -> None:
        nonlocal ended
        ended = True
        news.set()

    async def pump() -> None:
        async for item in start():
            here.call_soon_threadsafe(arrive, item)

    pumping = asyncio.run_coroutine_threadsafe(pump(), loop)
    # Comes behind the last item: both take the same way into this loop.
    pumping.add_done_callback(lambda _: here.call_soon_threadsafe(end))
    try:
        while items or not ended:
            if not items:
                await news.wait()
                news.clear()
                continue
            batch, items = items, []
            yield batch
        if not pumping.cancelled():
            pumping.result()
    finally:
        pumping.cancel()
