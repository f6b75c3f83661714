"""Which table an engine has to follow: fencing, and what holds after a lease ran out."""

from __future__ import annotations

from typing import Literal

from cluster.messages.directive import Applied, DepthTable, Directive


class Lease:
    """Holds the newest directive for its lease, then the fallback. Times are a monotonic clock's, in seconds."""

    def __init__(self, fallback: DepthTable, now: float) -> None:
        self._fallback = fallback
        self._directive: Directive | None = None
        self._source: Literal["start", "controller", "fallback"] = "start"
        self._accepted_at = now

    @property
    def table(self) -> DepthTable:
        return self._directive.table if self._directive and self._source == "controller" else self._fallback

    def accept(self, directive: Directive, now: float) -> bool:
        """Hold a directive from now on. False if it is not newer than the last: it is late, or from a replaced controller."""
        if self._directive and directive.order <= self._directive.order:
            return False
        self._directive, self._source, self._accepted_at = directive, "controller", now
        return True

    def expire(self, now: float) -> bool:
        """Fall back if the lease is over; true if that happened in this call."""
        if self._source != "controller" or not self._directive or now < self._accepted_at + self._directive.lease_s:
            return False
        self._source = "fallback"
        return True

    def silent_s(self, now: float) -> float:
        """Seconds since a directive was last accepted, or since the start."""
        return max(0.0, now - self._accepted_at)

    def applied(self, now: float) -> Applied:
        """What holds, and why."""
        directive = self._directive
        reason = {
            "start": "the engine's own table; no directive yet",
            "controller": directive.reason if directive else "",
            "fallback": f"no controller renewed the lease of {directive.lease_s if directive else 0:g} s",
        }[self._source]
        return Applied(
            source=self._source,
            incarnation=directive.incarnation if directive else 0,
            sequence=directive.sequence if directive else 0,
            table=self.table,
            reason=reason,
            age_s=self.silent_s(now),
        )
