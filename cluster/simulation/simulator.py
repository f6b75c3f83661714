"""A fleet of simulated engines under a real policy, and an oracle to measure it by.

An engine runs decode steps back to back; each looks its depth up in the table in force, as the real one does, and takes
the time that is true for its depth and batch size. Time passes in ticks. At each, as in the controller: the policy decides
from the reports of the exchange before, then every engine takes its new table and reports its counters. So a policy sees
what a table brought one tick after the tick that it was in force for, and it is told nothing in any other way.
A depth that cannot be run at a batch size is replaced by the next lower one that can (the lowest, if there is none).

What counts is expected: a step of batch B at depth k yields B E_k tokens (see `cluster.policy.acceptance`), the oracle's step the
most that any depth would have yielded per second. The share of a policy's goodput is

    sum of tokens / sum of (time of a step x the oracle's goodput at that step),

that is, against what the oracle would have made of the same time at the same load. The cost of probes is what the table
before them would have yielded in their time, less what they did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

import numpy as np

from cluster.messages.base import DEEPEST
from cluster.messages.directive import Applied, DepthTable
from cluster.messages.report import Acceptance, EngineReport, Load, RankState, StepCounts
from cluster.policy.goodput import expected_tokens
from cluster.policy.plan import Plan, Policy
from cluster.simulation.scenario import Scenario


class Truth(NamedTuple):
    """A step at one depth."""

    depth: int
    seconds: float
    tokens: float


@dataclass(frozen=True)
class Run:
    """Steps in a row on one engine, alike in all respects."""

    engine: int
    phase: int
    start: float  # seconds since the first step
    steps: int
    batch: int
    done: Truth
    best: Truth
    base: Truth | None  # what the table before a probe would have done; None outside a probe
    switched: bool  # whether its first step changed the depth

    @property
    def seconds(self) -> float:
        return self.steps * self.done.seconds

    @property
    def tokens(self) -> float:
        return self.steps * self.done.tokens

    @property
    def possible(self) -> float:
        """Tokens that the oracle would have yielded in the same time."""
        return self.seconds * self.best.tokens / self.best.seconds

    @property
    def lost_to_probe(self) -> float:
        return 0.0 if self.base is None else self.seconds * self.base.tokens / self.base.seconds - self.tokens


class World:
    """True steps of a scenario, computed once each."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._steps: dict[tuple[int, int, int], dict[int, Truth]] = {}

    def steps(self, engine: int, phase: int, batch: int) -> dict[int, Truth]:
        """What a step would be at each depth that can be run, shallowest first."""
        shared = self.scenario.phases[phase].acceptance_by_engine is None
        key = (0 if shared else engine, phase, batch)
        if key not in self._steps:
            truth = self.scenario.truth
            depths = [depth for depth in truth.depths if truth.covers(depth, batch)]
            accepted = np.array(padded(self.scenario.phases[phase].of_engine(engine)))
            tokens = batch * expected_tokens(accepted, depths)
            self._steps[key] = {k: Truth(k, truth.ms(k, batch) / 1e3, float(t)) for k, t in zip(depths, tokens, strict=True)}
        return self._steps[key]

    def run(self, engine: int, phase: int, batch: int, depth: int) -> Truth:
        """The step that an engine runs when told `depth`."""
        steps = self.steps(engine, phase, batch)
        return steps[max((k for k in steps if k <= depth), default=min(steps))]

    def best(self, engine: int, phase: int, batch: int) -> Truth:
        return max(self.steps(engine, phase, batch).values(), key=lambda step: step.tokens / step.seconds)


def padded(acceptance: tuple[float, ...]) -> tuple[float, ...]:
    """The last value holds for deeper positions."""
    return (*acceptance, *[acceptance[-1]] * DEEPEST)[:DEEPEST]


@dataclass
class _Count:
    steps: int = 0
    seconds: float = 0.0


@dataclass
class SimulatedEngine:
    """One engine: where it is in the scenario, the table it follows, and its counters."""

    world: World
    index: int
    random: np.random.Generator
    table: DepthTable = field(default_factory=lambda: DepthTable(enabled=False))
    base: DepthTable | None = None  # the table before, while a probe is in force
    clock: float = 0.0
    phase: int = 0
    at: int = 0  # steps done in this phase
    depth: int | None = None
    batch: int = 0
    sequence: int = 0
    tokens: int = 0
    requests: int = 0
    switches: int = 0
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    counts: dict[tuple[int, int], _Count] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.depths = self.world.scenario.truth.depths
        self.reached, self.accepted = [0] * max(self.depths), [0] * max(self.depths)

    @property
    def name(self) -> str:
        return f"engine-{self.index}"

    @property
    def done(self) -> bool:
        return self.phase == len(self.world.scenario.phases)

    def take(self, plan: Plan) -> None:
        """Follow a plan from the next step on."""
        self.base = (self.base or self.table) if plan.explores else None
        self.table = plan.table
        self.sequence += 1

    def advance(self, until: float) -> Iterator[Run]:
        """Run all steps that begin before `until`."""
        fresh: dict[tuple[int, int, int], int] = {}
        while self.clock < until and not self.done:
            phase = self.world.scenario.phases[self.phase]
            batch = phase.batches[self.at % len(phase.batches)]
            step = self.world.run(self.index, self.phase, batch, self.table.depth(batch))
            alike = phase.steps - self.at if len(phase.batches) == 1 else 1
            steps = max(1, min(alike, ceil((until - self.clock) / step.seconds)))
            base = None if self.base is None else self.world.run(self.index, self.phase, batch, self.base.depth(batch))
            best = self.world.best(self.index, self.phase, batch)
            switched = self.depth is not None and self.depth != step.depth
            yield Run(self.index, self.phase, self.clock, steps, batch, step, best, base, switched)
            key = (self.phase, step.depth, batch)
            fresh[key] = fresh.get(key, 0) + steps
            self.switches += switched
            self.depth, self.batch = step.depth, batch
            self.clock += steps * step.seconds
            self.at += steps
            if self.at == phase.steps:
                self.phase, self.at = self.phase + 1, 0
        for (at_phase, depth, batch), steps in fresh.items():
            self._count(at_phase, depth, batch, steps)

    def report(self) -> EngineReport:
        """Its counters, as the real engine reports them."""
        steps = tuple(count.steps for count in self.counts.values())
        return EngineReport(
            engine=self.name,
            incarnation=1,
            accepted=True,
            applied=Applied(source="controller" if self.sequence else "start", sequence=self.sequence, table=self.table),
            load=Load(running=self.batch, waiting=0, max_running=self.world.scenario.max_batch, kv_usage=0.0),
            depth=self.depth or 0,
            candidate_depths=self.depths,
            batch_sizes=(),
            acceptance=Acceptance(reached=tuple(self.reached), accepted=tuple(self.accepted)),
            steps=StepCounts(
                depth=tuple(depth for depth, _ in self.counts),
                batch=tuple(batch for _, batch in self.counts),
                count=steps,
                timed=steps,
                seconds=tuple(count.seconds for count in self.counts.values()),
            ),
            tokens=self.tokens,
            requests=self.requests,
            switches=self.switches,
            ranks=(RankState(rank=0, revision=self.sequence, at_step=0, depth=self.depth or 0, switches=self.switches),),
        )

    def _count(self, phase: int, depth: int, batch: int, steps: int) -> None:
        scenario = self.world.scenario
        count = self.counts.setdefault((depth, batch), _Count())
        noise = self.random.lognormal(0.0, scenario.noise, steps).sum() if scenario.noise else float(steps)
        count.steps += steps
        count.seconds += noise * self.world.steps(self.index, phase, batch)[depth].seconds
        left = steps * batch
        self.requests += left
        self.tokens += left
        accepted = padded(scenario.phases[phase].of_engine(self.index))
        for position in range(depth):
            self.reached[position] += left
            left = int(self.random.binomial(left, accepted[position]))
            self.accepted[position] += left
            self.tokens += left


def simulate(scenario: Scenario, policy: Policy) -> Iterator[Run]:
    """Run a scenario to its end under a policy."""
    world = World(scenario)
    seeds = np.random.SeedSequence(scenario.seed).spawn(scenario.engines)
    engines = [SimulatedEngine(world, i, np.random.default_rng(seed)) for i, seed in enumerate(seeds)]
    reports = {engine.name: engine.report() for engine in engines}
    tick_s = scenario.tick_ms / 1e3
    tick = 0
    while engines:
        plans = policy.decide(reports, tick * tick_s)
        for engine in engines:
            engine.take(plans[engine.name])
            reports[engine.name] = engine.report()
        tick += 1
        for engine in engines:
            yield from engine.advance(tick * tick_s)
        if any(engine.done for engine in engines):
            engines = [engine for engine in engines if not engine.done]
            reports = {engine.name: reports[engine.name] for engine in engines}
