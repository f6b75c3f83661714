"""A fleet of simulated engines under a real policy.

An engine runs decode steps back to back. Each step looks its depth up in the table in force, as the real one does, and takes
the time that is true for its depth and batch size. Time passes in ticks, as in the controller: the policy decides from the
reports of the exchange before, then every engine gets its new table and reports its counters. So a policy sees what a table
brought one tick after the tick in which it was in force, and learns nothing in any other way. If a depth cannot be run at a
batch size, the engine runs the next lower one that can, or the lowest if there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cluster.policy.plan import Policy
from cluster.simulation.run import Run
from cluster.simulation.scenario import Scenario
from cluster.simulation.simulated_engine import SimulatedEngine
from cluster.simulation.world import World


def simulate(scenario: Scenario, policy: Policy) -> Iterator[Run]:
    """Run a scenario to its end under a policy."""
    world = World(scenario)
    seeds = np.random.SeedSequence(scenario.seed).spawn(scenario.engines)
    engines = [SimulatedEngine(world, i, np.random.default_rng(seed)) for i, seed in enumerate(seeds)]
    reporting = {engine.name: engine.reporting() for engine in engines}
    tick_s = scenario.tick_ms / 1e3
    tick = 0
    while engines:
        plans = policy.decide(reporting, tick * tick_s)
        for engine in engines:
            engine.put_in_force(plans[engine.name])
            reporting[engine.name] = engine.reporting()
        tick += 1
        for engine in engines:
            yield from engine.advance(tick * tick_s)
        if any(engine.done for engine in engines):
            engines = [engine for engine in engines if not engine.done]
            reporting = {engine.name: reporting[engine.name] for engine in engines}
