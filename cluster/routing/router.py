"""Which engine takes a request."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from cluster.routing.routed_request import RoutedRequest
from cluster.routing.snapshot import EngineSnapshot

SLOTS_PER_RUNNING = 1.5
"""Default bound of an engine's requests, as a multiple of those that it decodes at once. A few that wait in the engine keep its
batch full; the others wait in the ingress, from where they can go to another engine."""

AFFINITY_BOUND = 1.25
"""An engine gets the requests that have affinity to it while it has less than this many times its fair share of all requests:
consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018). A cached prefix saves a prefill; with more
load than this, waiting costs more."""

AFFINITY_SLACK = 1 / 32
"""Added to that bound, as a share of the requests that the engine decodes at once: in a quiet fleet a second request on one
engine costs little."""

STALE_S = 5.0
"""A report older than this, in seconds, is not used: there is no controller that fetches new ones."""


@dataclass
class _Engine:
    """One engine, and what this router has sent to it."""

    snapshot: EngineSnapshot
    reported_at: float
    serving: bool = True
    in_flight: int = 0
    changes: deque[tuple[float, int]] = field(default_factory=deque)
    """When requests began (+) and ended (-), and how many, after the last report."""

    @property
    def max_running(self) -> int:
        return self.snapshot.max_running or 1

    @property
    def requests(self) -> int:
        """Requests by the last report, corrected by what happened here since; at least those in flight from here."""
        load = self.snapshot.load
        if load is None or time.monotonic() > self.reported_at + STALE_S:
            return self.in_flight
        return max(self.in_flight, load.running + load.waiting + sum(change for _, change in self.changes))

    @property
    def share(self) -> float:
        return self.requests / self.max_running

    def count(self, change: int) -> None:
        now = time.monotonic()
        self.in_flight += change
        self.changes.append((now, change))
        self.forget(now - STALE_S)

    def forget(self, before: float) -> None:
        while self.changes and self.changes[0][0] < before:
            self.changes.popleft()


@dataclass(frozen=True)
class Slot:
    """Room for one request in an engine. It must be released."""

    engine: EngineSnapshot
    samples: int


class Router:
    """Picks the less loaded of two engines, by fresh reports, with affinity and a bound on each engine's requests.

    Any number of routers work side by side: reports include what the others sent, and all compute the same hash for affinity.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._engines: dict[str, _Engine] = {}
        self._random = random.Random(seed)

    def observe(self, serving: Sequence[EngineSnapshot], built_at: float) -> None:
        """Take in the engines of a snapshot that was built at `built_at` or later, in seconds of `time.monotonic`."""
        for engine in self._engines.values():
            engine.serving = False
        for snapshot in serving:
            reported_at = built_at - (snapshot.report_age_s or 0.0)
            engine = self._engines.setdefault(snapshot.actor, _Engine(snapshot, reported_at))
            engine.snapshot, engine.reported_at, engine.serving = snapshot, reported_at, True
            engine.forget(reported_at)
        self._engines = {name: engine for name, engine in self._engines.items() if engine.serving or engine.in_flight}

    def reserve(self, request: RoutedRequest, excluded: Collection[str] = (), max_in_flight: int | None = None) -> Slot | None:
        """A slot for `request`, or None if no serving engine has room.

        Requests of the same affinity go to the same engine, unless it has much more than its share of all. `excluded` holds names
        of actors; `max_in_flight` bounds the requests of an engine (default: by `SLOTS_PER_RUNNING`).
        """
        free = {
            name: engine
            for name, engine in self._engines.items()
            if engine.serving
            and name not in excluded
            and engine.requests < (max_in_flight or math.ceil(SLOTS_PER_RUNNING * engine.max_running))
        }
        if not free:
            return None
        engine = self._nearest(free, request.affinity) if request.affinity else self._emptier_of_two(free)
        engine.count(request.samples)
        return Slot(engine.snapshot, request.samples)

    def release(self, slot: Slot) -> None:
        """Give a slot back."""
        self._engines[slot.engine.actor].count(-slot.samples)

    @property
    def in_flight(self) -> dict[str, int]:
        """Requests that went through this router and have not ended, by engine."""
        return {engine.snapshot.name: engine.in_flight for engine in self._engines.values()}

    def _emptier_of_two(self, free: dict[str, _Engine]) -> _Engine:
        return min(self._random.sample(list(free.values()), min(2, len(free))), key=lambda engine: engine.share)

    def _nearest(self, free: dict[str, _Engine], affinity: bytes) -> _Engine:
        """The first engine in the order that rendezvous hashing gives this affinity, without those that are too full."""
        share = (sum(engine.requests for engine in free.values()) + 1) / sum(engine.max_running for engine in free.values())

        def fits(engine: _Engine) -> bool:
            return engine.requests < (AFFINITY_BOUND * share + AFFINITY_SLACK) * engine.max_running

        return free[max((name for name in free if fits(free[name])), key=lambda name: _score(affinity, name))]


def _score(affinity: bytes, actor: str) -> bytes:
    return hashlib.blake2b(affinity + actor.encode(), digest_size=8).digest()
