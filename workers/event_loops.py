"""Calls from one thread's event loop to another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def call(loop: asyncio.AbstractEventLoop, start: Callable[[], Awaitable[T]]) -> T:
    """Await `start()` in `loop`, from another loop."""

    async def run() -> T:
        return await start()

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), loop))
