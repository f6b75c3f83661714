"""Depth by measured goodput: the policy of mode auto.

For every engine and batch size it takes the depth of most accepted tokens per second, from the fleet's acceptance and
step times as reported, keeps it unless another is clearly better, and probes for what the present depths do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, expm1

import numpy as np

from cluster.messages.profile import StepTimes
from cluster.messages.report import EngineFacts, EngineReport
from cluster.messages.settings import PolicySettings
from cluster.policy.acceptance import AcceptanceModel, Floats
from cluster.policy.cohort import Cohort, Kind
from cluster.policy.depth_choice import expected_tokens, within_limit
from cluster.policy.exploration import Explorer, View
from cluster.policy.plan import Plan
from cluster.policy.report_delta import Drafts, ReportedTotals, Steps
from cluster.policy.step_time import StepTimeFit

ABSENT_S = 60.0  # after which an engine that does not report is forgotten
LATELY_S = 5.0  # how long the batch sizes of an engine's last steps count as those it runs at
FIRST_TICK_S = 0.2
REASON_S = 1.0  # how old the numbers in a reason may be


@dataclass
class _Engine:
    counters: ReportedTotals = field(default_factory=ReportedTotals)
    group: Cohort | None = None
    seen_at: float = 0.0
    plan: Plan | None = None
    planned_at: float = 0.0


class MeasuredDepthPolicy:
    """Implements `cluster.policy.plan.Policy`. What it has learnt survives a change of its settings."""

    def __init__(self, settings: PolicySettings | None = None, prior: StepTimes | None = None) -> None:
        """`prior` holds step times to start from, for engines that report none of their own."""
        self._settings = settings or PolicySettings()
        self._prior = prior
        self._acceptance = AcceptanceModel(self._settings.half_life_s)
        self._engines: dict[str, _Engine] = {}
        self._groups: dict[Kind, Cohort] = {}
        self._probers: dict[Kind, Explorer] = {}
        self._now: float | None = None

    def configure(self, settings: PolicySettings) -> None:
        """Follow other settings from the next tick on."""
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
        for group, engines in members.items():
            plans.update(self._plan(now, min(tick_s, 10.0), group, engines))
        return {engine: plans[engine] for engine in reports}

    def _take_in(self, reports: Mapping[str, EngineReport], now: float) -> dict[Cohort, list[str]]:
        members: dict[Cohort, list[str]] = {}
        steps: dict[Cohort, Steps] = {}
        drafts = Drafts()
        for name, report in reports.items():
            engine = self._engines.get(name) or self._engines.setdefault(name, _Engine())
            engine.seen_at = now
            kind, group = Kind.of(report), engine.group
            if group is None or group.kind != kind:
                group = self._move(name, engine, kind, report.facts)
            if group not in members:
                members[group], steps[group] = [], Steps()
            members[group].append(name)
            engine.counters.take(name, report, drafts, steps[group])
        self._acceptance.observe(now, drafts)
        for group, new in steps.items():
            group.observe(now, new)
        return members

    def _plan(self, now: float, tick_s: float, group: Cohort, engines: list[str]) -> dict[str, Plan]:
        settings = self._settings
        costs, runnable = group.cost.costs(now), group.runnable(now)
        acceptance, deviation = self._acceptance.estimate(engines, max(1, *group.depths))
        log_tokens = np.log(expected_tokens(acceptance, group.depths))
        log_rate = log_tokens[:, :, None] - costs.log_s  # of one request, in tokens a second
        log_goodput = np.where(runnable, log_rate, -np.inf)
        if settings.tpot_limit_ms is not None:
            log_goodput = within_limit(log_goodput, np.exp(-log_rate), settings.tpot_limit_ms / 1e3)
        rows = group.update(now, engines, log_goodput, settings.switch_gain, settings.dwell_s, settings.switch_steps)
        busy = [name for name, at in zip(engines, group.ran_at[rows].tolist(), strict=True) if now - at <= LATELY_S]
        probe = None
        if settings.probe_share > 0 and busy:
            row_of = {name: i for i, name in enumerate(engines)}

            def view(name: str) -> View:
                i = row_of[name]
                visits = group.last_visits[rows[i]]
                places = {int(place): float(visits[place]) for place in visits.nonzero()[0]}
                step_s = sum(share * exp(costs.log_s[group.chosen[rows[i], place], place]) for place, share in places.items())
                return View(places, acceptance[i], deviation[i], step_s, self._acceptance.undecided(name))

            prober = self._probers.get(group.kind) or self._probers.setdefault(group.kind, Explorer(*_probing(settings)))
            probe = prober.probe(now, tick_s, group, busy, view, costs, runnable, settings.switch_gain)
        why = _Why(group, acceptance, log_tokens, costs)
        chosen, place = group.chosen[rows], group.last_visits[rows].argmax(axis=1).tolist()
        plans = {}
        for i, name in enumerate(engines):
            if probe is not None and probe.engine == name:
                tried = chosen[i].copy()
                tried[list(probe.depths)] = list(probe.depths.values())
                plans[name] = Plan(group.table(tried), probe.reason, probe=True)
                continue
            engine, table = self._engines[name], group.table(chosen[i])
            if engine.plan is None or engine.plan.table is not table or now - engine.planned_at >= REASON_S:
                engine.plan = Plan(table, why.of(i, place[i], int(chosen[i, place[i]])))
                # Spread over ticks, so that no tick has to find words for a whole fleet.
                engine.planned_at = now - (i % 8) / 8 * REASON_S if engine.planned_at == 0.0 else now
            plans[name] = engine.plan
        return plans

    def _move(self, name: str, engine: _Engine, kind: Kind, facts: EngineFacts) -> Cohort:
        if engine.group is not None:
            engine.group.forget(name)
        prior = StepTimes(step_ms=facts.step_ms) if facts.step_ms else self._prior
        group = self._groups.get(kind) or self._groups.setdefault(kind, Cohort(kind, prior))
        engine.group, engine.plan = group, None
        return group

    def _forget_absent(self, now: float) -> None:
        for name in [name for name, engine in self._engines.items() if now - engine.seen_at > ABSENT_S]:
            engine = self._engines.pop(name)
            self._acceptance.forget(name)
            if engine.group is None:
                continue
            engine.group.forget(name)
            if prober := self._probers.get(engine.group.kind):
                prober.forget(name)


class _Why:
    """Says in one line why a depth was chosen."""

    def __init__(self, group: Cohort, acceptance: Floats, log_tokens: Floats, costs: StepTimeFit) -> None:
        self._depths, self._floors = group.depths, group.floors
        self._acceptance, self._log_tokens = acceptance, log_tokens
        self._log_s: list[list[float]] = costs.log_s.T.tolist()

    def of(self, engine: int, place: int, k: int) -> str:
        """Of an engine's depth at a place of the grid (all arguments are indices)."""
        log_tokens: list[float] = self._log_tokens[engine].tolist()
        goodput = [tokens - s for tokens, s in zip(log_tokens, self._log_s[place], strict=True)]
        versus = ""
        if len(goodput) > 1:
            other = max((i for i in range(len(goodput)) if i != k), key=goodput.__getitem__)
            versus = f", {100 * expm1(goodput[k] - goodput[other]):+.1f}% over depth {self._depths[other]}"
        depth, batch = self._depths[k], self._floors[place]
        accepted = " ".join([f"{a:.2f}" for a in self._acceptance[engine, : max(1, depth)].tolist()])
        return (
            f"batch {batch}: depth {depth} yields {batch * exp(goodput[k]):.0f} tok/s{versus} (acceptance {accepted}; "
            f"{exp(log_tokens[k]):.2f} tokens in {1e3 * exp(self._log_s[place][k]):.2f} ms)"
        )


def _probing(settings: PolicySettings) -> tuple[float, float, float]:
    return settings.probe_share, settings.probe_shortest_s, max(settings.probe_shortest_s, settings.probe_longest_s)
