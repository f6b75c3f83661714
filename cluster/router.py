"""Which engine takes a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cluster.status import EngineStatus


class Router:
    """Sends a request to the engine with the fewest requests.

    An engine's requests are those in its last report, or those that this ingress has in flight there if they are more: a
    report is up to a tick old, and without its own count an ingress would send a whole burst to one engine.
    """

    def __init__(self) -> None:
        self._in_flight: Counter[str] = Counter()

    def pick(self, engines: Sequence[EngineStatus]) -> EngineStatus:
        """The least loaded of `engines`, which must not be empty."""
        return min(engines, key=self._requests)

    @contextmanager
    def sent_to(self, actor: str) -> Iterator[None]:
        """Count a request while it is in flight."""
        self._in_flight[actor] += 1
        try:
            yield
        finally:
            self._in_flight[actor] -= 1

    def _requests(self, engine: EngineStatus) -> int:
        reported = engine.report.load.running + engine.report.load.waiting if engine.report else 0
        return max(reported, self._in_flight[engine.actor])
