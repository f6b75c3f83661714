"""Depth by measured goodput: the policy of mode auto.

For every engine and batch size it takes the depth of most accepted tokens per second, from the fleet's acceptance and
step times as reported, keeps it unless another is clearly better, and probes for what the present depths do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from cluster.acceptance import AcceptanceModel, Floats
from cluster.choice import expected_tokens, within_limit
from cluster.cost import Costs
from cluster.deltas import Counters, News
from cluster.group import Group, Kind
from cluster.policy import Plan
from cluster.probe import Probe, Prober, View
from cluster.profile import Profile, StepTimes
from cluster.protocol import DepthTable, EngineReport, Message

ABSENT_S = 60.0  # after which an engine that does not report is forgotten
LATELY_S = 2.0  # how long the batch sizes of an engine's last steps count as those it runs at
FIRST_TICK_S = 0.2


class PolicySettings(Message):
    """Knobs of the policy. The defaults need no tuning."""

    profile: str | None = Field(
        None, description="Step times to start from: a packaged profile's name or the path of a .json. Default: measured alone."
    )
    tpot_limit_ms: float | None = Field(
        None, gt=0, description="Where any depth keeps the time per output token below this, only such depths are chosen."
    )
    switch_gain: float = Field(0.02, ge=0, le=1, description="Relative gain in goodput below which a depth is kept.")
    dwell_s: float = Field(
        1.0, ge=0, le=600, description="Least time between changes at one batch size of an engine, in seconds."
    )
    probe_share: float = Field(0.01, ge=0, le=0.2, description="Share of the goodput that probes may cost; 0: never probe.")
    probe_shortest_s: float = Field(2.0, gt=0, description="First interval between an engine's rechecks of a deeper depth.")
    probe_longest_s: float = Field(20.0, gt=0, description="Interval they back off to while they disappoint, in seconds.")
    half_life_s: float = Field(60.0, gt=0, description="Time in which evidence of acceptance loses half its weight.")


@dataclass
class _Engine:
    counters: Counters = field(default_factory=Counters)
    kind: Kind | None = None
    places: dict[int, float] = field(default_factory=dict)
    ran_at: float = float("-inf")
    seen_at: float = 0.0


class GoodputPolicy:
    """Implements `cluster.policy.Policy`. What it has learnt survives a change of its settings."""

    def __init__(self, settings: PolicySettings | None = None, prior: StepTimes | None = None) -> None:
        """`prior` replaces the settings' profile."""
        self._settings = settings or PolicySettings()
        self._prior = prior if prior is not None else _load(self._settings)
        self._acceptance = AcceptanceModel(self._settings.half_life_s)
        self._engines: dict[str, _Engine] = {}
        self._groups: dict[Kind, Group] = {}
        self._probers: dict[Kind, Prober] = {}
        self._tables: dict[tuple[tuple[int, int], ...], DepthTable] = {}
        self._now: float | None = None

    def configure(self, settings: PolicySettings) -> None:
        """Follow other settings from the next tick on. Another profile starts the cost models over."""
        if settings.profile != self._settings.profile:
            self._prior = _load(settings)
            self._groups.clear()
        self._settings = settings
        self._acceptance.half_life_s = settings.half_life_s
        for prober in self._probers.values():
            prober.share, prober.shortest_s, prober.longest_s = _probing(settings)

    def decide(self, reports: Mapping[str, EngineReport], now: float) -> dict[str, Plan]:
        """One tick: take the reports in, choose for every engine, and let a canary probe."""
        tick_s = FIRST_TICK_S if self._now is None or now <= self._now else now - self._now
        self._now = now
        members = self._take_in(reports, now)
        self._forget_absent(now)
        plans: dict[str, Plan] = {}
        for kind, engines in members.items():
            plans.update(self._plan(now, min(tick_s, 10.0), kind, engines))
        return {engine: plans[engine] for engine in reports}

    def _take_in(self, reports: Mapping[str, EngineReport], now: float) -> dict[Kind, list[str]]:
        members: dict[Kind, list[str]] = {}
        news: dict[str, News] = {}
        for name, report in reports.items():
            engine = self._engines.setdefault(name, _Engine())
            engine.seen_at = now
            if report is not engine.counters.last:
                kind = Kind.of(name, report)
                if kind != engine.kind:
                    self._move(name, engine, kind)
                news[name] = engine.counters.take(report)
            assert engine.kind is not None
            members.setdefault(engine.kind, []).append(name)
        counts = {name: n.acceptance for name, n in news.items() if n.acceptance and n.acceptance[0][0]}
        self._acceptance.observe(now, counts)
        for kind, engines in members.items():
            group = self._groups.get(kind) or self._groups.setdefault(kind, Group(kind, self._prior))
            group.cost.observe(now, (sample for name in engines if name in news for sample in news[name].timed))
            for name in engines:
                if name in news and news[name].steps:
                    self._ran(now, group, self._engines[name], news[name])
        return members

    @staticmethod
    def _ran(now: float, group: Group, engine: _Engine, news: News) -> None:
        places: dict[int, float] = {}
        total = sum(news.steps.values())
        for (_, batch), n in news.steps.items():
            place = group.place(batch)
            places[place] = places.get(place, 0.0) + n / total
        engine.places, engine.ran_at = places, now
        if news.table is not None:
            group.ran(now, news.steps, news.table.depth_by_batch)

    def _plan(self, now: float, tick_s: float, kind: Kind, engines: list[str]) -> dict[str, Plan]:
        settings, group = self._settings, self._groups[kind]
        costs, runnable = group.cost.costs(now), group.runnable(now)
        acceptance, deviation = self._acceptance.estimate(engines)
        log_tokens = np.log(expected_tokens(acceptance, group.depths))
        log_tpot = costs.log_s[None] - log_tokens[:, :, None]
        log_goodput = np.where(runnable, -log_tpot, -np.inf)
        if settings.tpot_limit_ms is not None:
            log_goodput = within_limit(log_goodput, np.exp(log_tpot), settings.tpot_limit_ms / 1e3)
        rows = group.update(now, engines, log_goodput, settings.switch_gain, settings.dwell_s)
        views = {}
        for i, name in enumerate(engines):
            engine = self._engines[name]
            if now - engine.ran_at <= LATELY_S:
                step_s = sum(w * float(np.exp(costs.log_s[group.chosen[rows[i], p], p])) for p, w in engine.places.items())
                views[name] = View(engine.places, acceptance[i], deviation[i], step_s)
        prober = self._probers.get(kind) or self._probers.setdefault(kind, Prober(*_probing(settings)))
        probe = None
        if settings.probe_share > 0 and views:
            probe = prober.probe(now, tick_s, group, views, costs, runnable, settings.switch_gain)
        chosen = group.chosen[rows].tolist()
        return {
            name: self._one(now, group, name, chosen[i], acceptance[i], log_tokens[i], costs, probe)
            for i, name in enumerate(engines)
        }

    def _one(
        self,
        now: float,
        group: Group,
        name: str,
        chosen: list[int],
        acceptance: Floats,
        log_tokens: Floats,
        costs: Costs,
        probe: Probe | None,
    ) -> Plan:
        if probe is not None and probe.engine == name:
            return Plan(self._table(group, [probe.depths.get(p, k) for p, k in enumerate(chosen)]), probe.reason, probe=True)
        places = self._engines[name].places
        place = max(places, key=lambda p: places[p]) if places else 0
        return Plan(self._table(group, chosen), _why(group, place, chosen[place], acceptance, log_tokens, costs))

    def _table(self, group: Group, chosen: list[int]) -> DepthTable:
        entries = [(1, group.depths[chosen[0]])]
        for floor, k in zip(group.floors, chosen, strict=True):
            if group.depths[k] != entries[-1][1]:
                entries.append((floor, group.depths[k]))
        key = tuple(entries)
        if key not in self._tables:
            if len(self._tables) > 10_000:
                self._tables.clear()
            self._tables[key] = DepthTable(depth_by_batch=dict(entries))
        return self._tables[key]

    def _move(self, name: str, engine: _Engine, kind: Kind) -> None:
        if engine.kind is not None and engine.kind in self._groups:
            self._groups[engine.kind].forget(name)
        engine.kind, engine.places = kind, {}

    def _forget_absent(self, now: float) -> None:
        for name in [name for name, engine in self._engines.items() if now - engine.seen_at > ABSENT_S]:
            engine = self._engines.pop(name)
            self._acceptance.forget(name)
            if engine.kind is not None and engine.kind in self._groups:
                self._groups[engine.kind].forget(name)
            if engine.kind in self._probers:
                self._probers[engine.kind].forget(name)


def _why(group: Group, place: int, k: int, acceptance: Floats, log_tokens: Floats, costs: Costs) -> str:
    batch, depth = group.floors[place], group.depths[k]
    goodput = log_tokens - costs.log_s[:, place]
    others = [i for i in range(len(group.depths)) if i != k]
    versus = ""
    if others:
        other = max(others, key=lambda i: float(goodput[i]))
        versus = f", {100 * np.expm1(goodput[k] - goodput[other]):+.1f}% over depth {group.depths[other]}"
    accepted = " ".join(f"{a:.2f}" for a in acceptance[: max(1, depth)].tolist())
    return (
        f"batch {batch}: depth {depth} yields {batch * np.exp(goodput[k]):.0f} tok/s{versus} "
        f"(acceptance {accepted}; {np.exp(log_tokens[k]):.2f} tokens in {1e3 * np.exp(costs.log_s[k, place]):.2f} ms)"
    )


def _probing(settings: PolicySettings) -> tuple[float, float, float]:
    return settings.probe_share, settings.probe_shortest_s, max(settings.probe_shortest_s, settings.probe_longest_s)


def _load(settings: PolicySettings) -> Profile | None:
    return None if settings.profile is None else Profile.load(settings.profile)
