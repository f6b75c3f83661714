"""Which engine takes a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cluster.status import EngineStatus


class Router:
    """Sends a request to the engine with the fewest requests.

    An engine's requests are those in its last report, plus those that this ingress sent since: a report is up to a tick
    old, and without its own count an ingress would send a whole burst to one engine.
    """

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()
        self._reported: dict[str, tuple[int, int]] = {}

    def observe(self, engines: Sequence[EngineStatus]) -> None:
        """Take in fresh reports. Remembers how many requests of this ingress each report already counts."""
        self._reported = {
            e.actor: (e.report.load.running + e.report.load.waiting, self._in_flight[e.actor]) for e in engines if e.report
        }

    def pick(self, engines: Sequence[EngineStatus]) -> EngineStatus:
        """The least loaded of `engines`, which must not be empty."""
        return min(engines, key=lambda e: self._requests(e.actor))

    @contextmanager
    def sent_to(self, actor: str) -> Iterator[None]:
        """Count a request while it is in flight."""
        self._in_flight[actor] += 1
        try:
            yield
        finally:
            self._in_flight[actor] -= 1

    def _requests(self, actor: str) -> int:
        reported, already = self._reported.get(actor, (0, 0))
        return reported + self._in_flight[actor] - already
