"""When an engine may explore again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

REPEATED_S = 60.0
"""Time until the same trial may be repeated, in seconds; four times as long after each."""


class TrialSchedule:
    """Trials that a cohort has made, by batch bucket and depth (indices)."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], int] = {}
        self._again_at: dict[tuple[int, int], float] = {}

    def may_try(self, now: float, bucket: int, depth: int) -> bool:
        return now >= self._again_at.get((bucket, depth), -inf)

    def made(self, now: float, depths: Mapping[int, int]) -> None:
        """Remember a trial of these depths, by bucket."""
        for trial in depths.items():
            made = self._made.get(trial, 0)
            self._made[trial] = made + 1
            self._again_at[trial] = now + REPEATED_S * 4.0**made


@dataclass
class _Interval:
    wait_s: float
    due: float


class RecheckSchedule:
    """When each engine of a cohort rechecks a deeper depth. Times are in seconds."""

    def __init__(self) -> None:
        self._intervals: dict[str, _Interval] = {}

    def due(self, now: float, engine: str, shortest_s: float) -> bool:
        """Whether it is time. A new engine waits for the shortest interval."""
        return now >= self._intervals.setdefault(engine, _Interval(shortest_s, now + shortest_s)).due

    def paid(self, now: float, engine: str, shortest_s: float) -> None:
        """A recheck showed that the deeper depth pays: start over."""
        self._intervals[engine] = _Interval(shortest_s, now + shortest_s)

    def disappointed(self, now: float, engine: str, shortest_s: float, longest_s: float) -> None:
        """A recheck showed that it does not: wait for twice as long as before."""
        wait_s = min(2 * self._wait_s(engine, shortest_s), longest_s)
        self._intervals[engine] = _Interval(wait_s, now + wait_s)

    def undecided(self, now: float, engine: str, shortest_s: float) -> None:
        """A recheck showed too little to tell: let the next one follow soon."""
        self._intervals[engine] = _Interval(self._wait_s(engine, shortest_s), now + shortest_s)

    def forget(self, engine: str) -> None:
        """Drop an engine that is gone."""
        self._intervals.pop(engine, None)

    def _wait_s(self, engine: str, shortest_s: float) -> float:
        return self._intervals[engine].wait_s if engine in self._intervals else shortest_s
