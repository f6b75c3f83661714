"""What the controller hands out: the fleet's status, and the snapshot that ingresses route by."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.messages.status import FleetStatus
from cluster.routing.snapshot import PackedSnapshot, Snapshot


class Published:
    """Builds status and snapshot once and hands them out until they expire, however many ingresses fetch them.

    The controller lets them expire at every tick and at every change of an engine's state. A fetch only updates the age.
    """

    def __init__(self, build: Callable[[], FleetStatus]) -> None:
        self._build = build
        self._status: FleetStatus | None = None
        self._snapshot: bytes | None = None
        self._built_at = 0.0

    def expire(self) -> None:
        """Build both again at the next fetch."""
        self._status = self._snapshot = None

    def status(self) -> FleetStatus:
        return self._current().model_copy(update={"age_s": self._age_s()})

    def snapshot(self) -> PackedSnapshot:
        status = self._current()
        if self._snapshot is None:
            self._snapshot = Snapshot.of(status).pack()
        return PackedSnapshot(age_s=self._age_s(), content=self._snapshot)

    def _current(self) -> FleetStatus:
        if self._status is None:
            self._status, self._built_at = self._build(), time.monotonic()
        return self._status

    def _age_s(self) -> float:
        return time.monotonic() - self._built_at
