"""A waiting line: bounded in length and in time, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class QueueFullError(Exception):
    """There is no room in the line, or nothing came free in time."""


class AdmissionQueue(Generic[T]):
    """Hands things out in the order in which they were asked for."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], T | None], asyncio.Future[T]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def get(self, take: Callable[[], T | None], give_back: Callable[[T], None], length: int, timeout_s: float) -> T:
        """What `take` takes, once all who came before have theirs. `take` answers None while there is nothing.

        `give_back` is called for what was taken for one who stopped waiting. Whatever `take` raises is raised here.

        Raises:
            QueueFullError: if `length` others wait already, or after `timeout_s`.
        """
        if not self._waiting and (taken := take()) is not None:
            return taken
        if len(self._waiting) >= length:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # Not `asyncio.wait_for`: up to Python 3.11 it loses a cancellation that comes together with the result.
        timer = loop.call_later(timeout_s, _give_up, future)
        entry = (take, future)
        self._waiting.append(entry)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and not future.exception():
                give_back(future.result())
            raise
        finally:
            timer.cancel()
            if entry in self._waiting:
                self._waiting.remove(entry)
                self.advance()

    def advance(self) -> None:
        """Serve those in front, as far as there is something: to be called when something may have come free."""
        while self._waiting:
            take, future = self._waiting[0]
            if future.done():
                self._waiting.popleft()
                continue
            try:
                taken = take()
            except Exception as error:
                future.set_exception(error)
            else:
                if taken is None:
                    return
                future.set_result(taken)
            self._waiting.popleft()


def _give_up(future: asyncio.Future[T]) -> None:
    if not future.done():
        future.set_exception(QueueFullError())
