"""A simulated engine: it follows tables as the real one does, and reports counters as the real one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from cluster.messages.directive import Applied, DepthTable
from cluster.messages.hello import ServingFacts
from cluster.messages.report import Acceptance, EngineReport, Load, RankState, StepCounts
from cluster.policy.plan import Plan, ReportingEngine
from cluster.simulation.run import Run
from cluster.simulation.world import World


@dataclass
class _Count:
    steps: int = 0
    seconds: float = 0.0


@dataclass
class SimulatedEngine:
    """Where one engine is in the scenario, the table that it follows, and its counters."""

    world: World
    index: int
    random: np.random.Generator
    table: DepthTable = field(default_factory=lambda: DepthTable(enabled=False))
    base: DepthTable | None = None  # the table before, while it explores
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
        scenario = self.world.scenario
        self.depths = scenario.truth.depths
        self.facts = ServingFacts(incarnation=1, candidate_depths=self.depths, batch_sizes=(), max_running=scenario.max_batch)
        self.reached, self.accepted = [0] * max(self.depths), [0] * max(self.depths)

    @property
    def name(self) -> str:
        return f"engine-{self.index}"

    @property
    def done(self) -> bool:
        return self.phase == len(self.world.scenario.phases)

    def put_in_force(self, plan: Plan) -> None:
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
            step = self.world.step(self.index, self.phase, batch, self.table.depth(batch))
            alike = phase.steps - self.at if len(phase.batches) == 1 else 1
            steps = max(1, min(alike, ceil((until - self.clock) / step.seconds)))
            base = None if self.base is None else self.world.step(self.index, self.phase, batch, self.base.depth(batch))
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

    def reporting(self) -> ReportingEngine:
        """What a policy knows of it now."""
        return ReportingEngine(self.facts, self.report())

    def report(self) -> EngineReport:
        """Its counters, as the real engine reports them."""
        steps = tuple(count.steps for count in self.counts.values())
        return EngineReport(
            engine=self.name,
            incarnation=1,
            accepted=True,
            applied=Applied(source="controller" if self.sequence else "start", sequence=self.sequence, table=self.table),
            load=Load(running=self.batch, waiting=0, kv_usage=0.0),
            depth=self.depth or 0,
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
        acceptance = self.world.acceptance(self.index, phase)
        for position in range(depth):
            self.reached[position] += left
            left = int(self.random.binomial(left, acceptance[position]))
            self.accepted[position] += left
            self.tokens += left
