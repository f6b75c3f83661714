"""The requests that an engine answers, and how they are ended before their time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, TypeVar

T = TypeVar("T")

REMEMBERED = 1024
"""How many ends of unknown requests are kept in mind. One that overtook its request did so by milliseconds."""


class Answering:
    """Ends a request by cancelling the task that answers it: SGLang then drops all it has of it, whatever it is at.

    Its `abort_request` would do nothing for a request that it does not know yet, that it has not sent to its scheduler yet, or
    that asks for several samples: those get ids of SGLang's own.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._ended: deque[str] = deque(maxlen=REMEMBERED)

    async def answer(self, rid: str, pieces: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield `pieces` until the request is ended; none if it was ended before it came."""
        if rid in self._ended:
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks[rid] = task
        try:
            async for piece in pieces:
                yield piece
        finally:
            del self._tasks[rid]

    def end(self, rid: str) -> None:
        """End a request, also one that has yet to come. Nothing happens if it has been answered."""
        if task := self._tasks.get(rid):
            task.cancel()
        else:
            self._ended.append(rid)
