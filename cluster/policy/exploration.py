"""Exploration that pays: which engine tries what, when, and for how long.

Two things are worth a probe:

- a trial: a depth whose goodput could well beat the present one, given how uncertain its cost and its deeper positions'
  acceptance are. One short trial settles it, so trials follow each other closely, but the same one only at ever longer
  intervals.
- a recheck: the draft may have become better while a shallow depth, or none, hides it. No amount of certainty about the
  past excludes that, so each engine rechecks from time to time the shallowest deeper depth that would pay if acceptance
  were high; the interval doubles while rechecks disappoint and starts over when one does not. It stops growing where
  rechecks cost next to nothing.

One engine of a group probes at a time, its canary, for as few ticks as bring enough steps; what it learns reaches the
others through the models. The goodput that probes are expected to cost is drawn from a credit, which fills at a small
share of the fleet's time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, expm1

import numpy as np

from cluster.policy.acceptance import Floats
from cluster.policy.cohort import Cohort
from cluster.policy.depth_choice import Mask, expected_tokens
from cluster.policy.step_time import StepTimeFit

LUCK = 1.25  # standard deviations by which acceptance may surprise in a trial
CHEAPER = 2.0  # and the cost of a step
BETTER_DRAFT = 0.9  # acceptance that a recheck hopes for
PROBE_SAMPLES = 24  # drafts at the first position that make a probe worth reading
PROBE_STEPS = 3  # and steps
LONGEST_S = 2.0  # of a probe
TRIAL_S = 60.0  # before the same trial is made again; four times as long after each
THRIFT = 0.5  # part of the probes' share that is drawn on, as a probe may cost more than expected
CHEAP = 0.25  # part of the probes' share below which rechecks are cheap enough
CALM_STEPS = 1000  # between disappointing rechecks, however cheap: each changes depth twice
LOOKED_AT = 8  # engines considered per tick
MATTERS = 0.02  # share of an engine's steps below which a batch size is not probed
FIRST_CREDIT_S = 0.5  # goodput, as seconds of one engine, that probes may cost before any credit was earned


@dataclass(frozen=True)
class View:
    """What is known about one engine at a tick. Arrays are by the group's depths and places."""

    visited: Mapping[int, float]  # places that it lately ran at, with their shares of its steps
    acceptance: Floats
    deviation: Floats
    step_s: float  # time of its steps, on average
    undecided: bool  # whether it has shown drafts, but too few yet to tell


@dataclass(frozen=True)
class Exploration:
    """Depths (as indices) that a canary tries at some places of the grid."""

    engine: str
    depths: Mapping[int, int]
    instead_of: Mapping[int, int]
    until: float
    cost_s: float  # goodput that it is expected to cost, as seconds of the engine
    step_s: float  # time of the engine's steps
    reason: str


@dataclass
class _Interval:
    wait_s: float
    due: float


@dataclass
class Explorer:
    """Plans the probes of one group."""

    share: float
    shortest_s: float
    longest_s: float
    _running: Exploration | None = None
    _credit_s: float = FIRST_CREDIT_S
    _intervals: dict[str, _Interval] = field(default_factory=dict)
    _trials: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    _turn: int = 0

    def probe(
        self,
        now: float,
        tick_s: float,
        group: Cohort,
        engines: Sequence[str],
        view: Callable[[str], View],
        costs: StepTimeFit,
        runnable: Mask,
        gain: float,
    ) -> Exploration | None:
        """The probe in force from now until the next tick, if any."""
        earned = THRIFT * self.share * len(engines)
        self._credit_s = min(self._credit_s + earned * tick_s, max(FIRST_CREDIT_S, earned))
        if self._running is not None:
            if now < self._running.until and self._running.engine in group.row:
                return self._running
            # What a tick brought is in the report that comes at its end, which is read one tick later.
            if now < self._running.until + tick_s:
                return None
            undecided = self._running.engine in engines and view(self._running.engine).undecided
            self._settle(now, self._running, group, undecided)
            self._running = None
        for _ in range(min(LOOKED_AT, len(engines))):
            self._turn = (self._turn + 1) % len(engines)
            engine = engines[self._turn]
            look = _Look(group, group.row[engine], view(engine), costs, runnable, gain)
            depths, recheck = look.trials(lambda place, k: self._may_try(now, place, k)), False
            if not depths and self._due(now, engine):
                depths, recheck = look.rechecks(), True
            if depths and (planned := self._planned(now, tick_s, engine, depths, recheck, look)):
                self._running = planned
                return planned
        return None

    def _planned(
        self, now: float, tick_s: float, engine: str, depths: dict[int, int], recheck: bool, look: _Look
    ) -> Exploration | None:
        ticks = max(1, ceil(min(look.seconds(depths), LONGEST_S) / tick_s))
        cost = look.loss(depths) * ticks * tick_s
        if cost > self._credit_s:
            return None
        self._credit_s -= cost
        if not recheck:
            for place, k in depths.items():
                count, _ = self._trials.get((place, k), (0, 0.0))
                self._trials[place, k] = (count + 1, now + TRIAL_S * 4.0**count)
        return Exploration(
            engine,
            depths,
            {place: look.current(place) for place in depths},
            now + (ticks - 0.5) * tick_s,
            cost,
            look.view.step_s,
            look.reason(depths, recheck, ticks),
        )

    def _settle(self, now: float, probe: Exploration, group: Cohort, undecided: bool) -> None:
        row = group.row.get(probe.engine)
        deeper = all(k > probe.instead_of[place] for place, k in probe.depths.items())
        if row is None or not deeper:
            return
        pays = any(group.chosen[row, place] > k for place, k in probe.instead_of.items())
        interval = self._intervals.setdefault(probe.engine, _Interval(self.shortest_s, now))
        if undecided and not any(group.depths[k] for k in probe.instead_of.values()):
            # An engine that is off shows drafts in probes alone: the next one adds to what this one brought.
            interval.due = now + self.shortest_s
            return
        interval.wait_s = self.shortest_s if pays else min(2 * interval.wait_s, self._ceiling(probe))
        interval.due = now + interval.wait_s

    def _ceiling(self, probe: Exploration) -> float:
        """Longest interval between rechecks that cost as much as this probe."""
        cheap_enough = probe.cost_s / (CHEAP * self.share)
        return min(self.longest_s, max(self.shortest_s, CALM_STEPS * probe.step_s, cheap_enough))

    def _due(self, now: float, engine: str) -> bool:
        interval = self._intervals.setdefault(engine, _Interval(self.shortest_s, now + self.shortest_s))
        return now >= interval.due

    def _may_try(self, now: float, place: int, k: int) -> bool:
        return now >= self._trials.get((place, k), (0, -np.inf))[1]

    def forget(self, engine: str) -> None:
        """Drop an engine that is no more."""
        self._intervals.pop(engine, None)


class _Look:
    """One engine, looked at for something to probe."""

    def __init__(self, group: Cohort, row: int, view: View, costs: StepTimeFit, runnable: Mask, gain: float) -> None:
        self.view = view
        self._group, self._costs, self._runnable, self._gain = group, costs, runnable, float(np.log1p(gain))
        self._chosen = group.chosen[row]
        self._tokens = np.log(expected_tokens(view.acceptance, group.depths))

    def current(self, place: int) -> int:
        return int(self._chosen[place])

    def trials(self, allowed: Callable[[int, int], bool]) -> dict[int, int]:
        """At each place that matters, the depth of the best optimistic goodput, where that beats the present one."""
        found: dict[int, int] = {}
        for place in self._places():
            now = self.current(place)
            bar = self._goodput(place, now) + self._gain
            hopeful = self._hopeful(now, self.view.acceptance + LUCK * self.view.deviation)
            for k in range(len(self._group.depths)):
                if k == now or not self._runnable[k, place] or not allowed(place, k):
                    continue
                hope = hopeful[k] - self._costs.log_s[k, place] + CHEAPER * self._costs.doubt(k, now, place)
                if hope > bar:
                    found[place], bar = k, hope
        return found

    def rechecks(self) -> dict[int, int]:
        """At each place that matters, the shallowest deeper depth that a good draft would make pay."""
        found: dict[int, int] = {}
        for place in self._places():
            now = self.current(place)
            hopeful = self._hopeful(now, np.maximum(self.view.acceptance, BETTER_DRAFT))
            for k in range(now + 1, len(self._group.depths)):
                if self._runnable[k, place] and hopeful[k] - self._costs.log_s[k, place] > self._goodput(place, now) + self._gain:
                    found[place] = k
                    break
        return found

    def loss(self, depths: Mapping[int, int]) -> float:
        """Share of the engine's goodput that trying these depths is expected to cost."""
        return sum(self.view.visited[place] * max(0.0, -expm1(self._relative(place, k))) for place, k in depths.items())

    def seconds(self, depths: Mapping[int, int]) -> float:
        """Time until trying these depths has shown enough."""
        visited, batches = self.view.visited, self._group.batches
        visits = sum(visited[place] for place in depths)
        batch = sum(visited[place] * batches[place] for place in depths) / visits
        step_s = sum(visited[place] * float(np.exp(self._costs.log_s[k, place])) for place, k in depths.items()) / visits
        others_s = self.view.step_s * (1.0 - visits) / visits
        return max(PROBE_STEPS, PROBE_SAMPLES / batch) * (step_s + others_s)

    def reason(self, depths: Mapping[int, int], recheck: bool, ticks: int) -> str:
        place = max(depths, key=lambda p: self.view.visited[p])
        tried, now = self._group.depths[depths[place]], self._group.depths[self.current(place)]
        what = "recheck" if recheck else "trial"
        percent = 100 * expm1(self._relative(place, depths[place]))
        a, sd = self.view.acceptance[max(0, tried - 1)], self.view.deviation[max(0, tried - 1)]
        return (
            f"probe ({what}, {ticks} tick{'s' if ticks > 1 else ''}): depth {tried} instead of {now} at batch "
            f"{self._group.floors[place]}, expected {percent:+.0f}% goodput at acceptance {a:.2f}±{sd:.2f} of its last position"
        )

    def _places(self) -> list[int]:
        return [place for place, share in self.view.visited.items() if share >= MATTERS]

    def _goodput(self, place: int, k: int) -> float:
        return float(self._tokens[k] - self._costs.log_s[k, place])

    def _relative(self, place: int, k: int) -> float:
        return self._goodput(place, k) - self._goodput(place, self.current(place))

    def _hopeful(self, now: int, acceptance: Floats) -> Floats:
        """Log tokens by depth, with hope only for positions that the present depth does not show."""
        seen = self._group.depths[now]
        mixed = np.concatenate([self.view.acceptance[:seen], np.clip(acceptance[seen:], 0.0, 0.99)])
        result: Floats = np.log(expected_tokens(mixed, self._group.depths))
        return result
