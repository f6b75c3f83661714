"""What is true of a scenario: the time and the tokens of every step, and the best depth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster.messages.base import DEEPEST
from cluster.policy.goodput import expected_tokens
from cluster.simulation.scenario import Scenario


class TrueStep(NamedTuple):
    """A decode step at one depth."""

    depth: int
    seconds: float
    tokens: float  # that it is expected to yield

    def tokens_in(self, seconds: float) -> float:
        """Tokens that such steps yield in this time."""
        return seconds * self.tokens / self.seconds


class World:
    """True steps of a scenario, computed once each."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._steps: dict[tuple[int, int, int], dict[int, TrueStep]] = {}

    def steps(self, engine: int, phase: int, batch: int) -> dict[int, TrueStep]:
        """The step at each depth that can be run, shallowest first."""
        shared = self.scenario.phases[phase].acceptance_by_engine is None
        key = (0 if shared else engine, phase, batch)
        if key not in self._steps:
            truth = self.scenario.truth
            depths = [depth for depth in truth.depths if truth.covers(depth, batch)]
            tokens = batch * expected_tokens(np.array(self.acceptance(engine, phase)), depths)
            self._steps[key] = {k: TrueStep(k, truth.ms(k, batch) / 1e3, float(t)) for k, t in zip(depths, tokens, strict=True)}
        return self._steps[key]

    def step(self, engine: int, phase: int, batch: int, depth: int) -> TrueStep:
        """The step that an engine runs when told `depth`: the next lower one that can be run, or else the lowest."""
        steps = self.steps(engine, phase, batch)
        return steps[max((k for k in steps if k <= depth), default=min(steps))]

    def best(self, engine: int, phase: int, batch: int) -> TrueStep:
        """The step of most goodput: the oracle's."""
        return max(self.steps(engine, phase, batch).values(), key=lambda step: step.tokens / step.seconds)

    def acceptance(self, engine: int, phase: int) -> tuple[float, ...]:
        """Conditional acceptance at every position. The scenario's last value holds for deeper ones."""
        given = self.scenario.phases[phase].of_engine(engine)
        return (*given, *[given[-1]] * DEEPEST)[:DEEPEST]
