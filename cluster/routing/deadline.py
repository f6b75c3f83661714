"""A time limit over many awaits, at the price of one timer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class DeadlineError(Exception):
    """The time is over."""


class Deadline:
    """Limits everything that is awaited through it, in any task. `asyncio.wait_for` would cost a timer for each piece of each
    stream."""

    def __init__(self, seconds: float) -> None:
        """Start the time: `seconds` from now."""
        self.seconds = seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        self._waiting: asyncio.Task[object] | None = None
        self._expired = False

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """The result of `awaitable`. Only one can be awaited at a time.

        Raises:
            DeadlineError: when the time is over.
        """
        if self._expired:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise DeadlineError
        self._waiting = task = asyncio.current_task()
        try:
            return await awaitable
        except asyncio.CancelledError:
            if not self._expired:
                raise
            if sys.version_info >= (3, 11) and task is not None:
                task.uncancel()
            raise DeadlineError from None
        finally:
            self._waiting = None

    def cancel(self) -> None:
        """End the timer."""
        self._timer.cancel()

    def _expire(self) -> None:
        self._expired = True
        if self._waiting is not None:
            self._waiting.cancel()
