"""Where requests wait while all engines are full: bounded in length and in time, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from cluster.routing.routed_request import RoutedRequest
from cluster.routing.router import Router, Slot


class QueueFullError(Exception):
    """There is no room in the queue, or no slot came free in time."""


@dataclass(frozen=True)
class QueueLimits:
    """How many may wait, how long, and for what."""

    max_in_flight: int | None
    """Most requests of one engine; None for the router's own bound."""

    length: int
    """Most requests that wait."""

    timeout_s: float
    """How long one waits, in seconds."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    request: RoutedRequest
    excluded: Collection[str]
    max_in_flight: int | None
    slot: asyncio.Future[Slot]


class AdmissionQueue:
    """Gives requests the router's slots, in the order in which they came."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def reserve(self, request: RoutedRequest, excluded: Collection[str], limits: QueueLimits) -> Slot:
        """Return a slot for `request`, after all requests that came before it. The slot must be given back by `release`.

        `excluded` holds names of actors, and is read again each time that a slot may have come free.

        Raises:
            QueueFullError: if the queue is full, or no slot comes free in time.
        """
        if not self._waiting and (slot := self._router.reserve(request, excluded, limits.max_in_flight)):
            return slot
        if len(self._waiting) >= limits.length:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, excluded, limits.max_in_flight, loop.create_future())
        # Not `asyncio.wait_for`: up to Python 3.11 it loses a cancellation that comes together with the result.
        timer = loop.call_later(limits.timeout_s, _give_up, waiting.slot)
        self._waiting.append(waiting)
        try:
            return await waiting.slot
        except asyncio.CancelledError:
            if not waiting.slot.cancelled() and not waiting.slot.exception():
                self.release(waiting.slot.result())
            raise
        finally:
            timer.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self.advance()

    def release(self, slot: Slot) -> None:
        """Give a slot back, to the next request in the queue."""
        self._router.release(slot)
        self.advance()

    def advance(self) -> None:
        """Give slots to the first in the queue while there are any. Call it when the router has seen a new snapshot."""
        while self._waiting:
            first = self._waiting[0]
            if not first.slot.done():
                slot = self._router.reserve(first.request, first.excluded, first.max_in_flight)
                if slot is None:
                    return
                first.slot.set_result(slot)
            self._waiting.popleft()


def _give_up(slot: asyncio.Future[Slot]) -> None:
    if not slot.done():
        slot.set_exception(QueueFullError())
