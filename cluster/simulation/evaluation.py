"""How near a policy comes to an oracle that knows acceptance and step times at every step.

Tokens are expected values: a step of batch B at depth k yields B E_k tokens (`cluster.policy.goodput`). The oracle's step is the
one with most tokens a second. The share of a policy's goodput is

    sum of tokens / sum of (time of a step x the oracle's goodput at that step),

so the oracle has the same time at the same load. Exploration costs the tokens that the tables before it would have yielded in
its time, less those that it did yield.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.policy.plan import Policy
from cluster.simulation.scenario import Scenario
from cluster.simulation.simulator import simulate


@dataclass(frozen=True)
class Result:
    """The result of a scenario."""

    name: str
    share: float  # goodput over the oracle's
    worst_phase: float
    phases: list[float]
    switches_per_1000_steps: float  # changes of depth between two steps of an engine
    probe_share: float  # goodput that exploration cost, over the oracle's


def evaluate(scenario: Scenario, policy: Policy | None = None) -> Result:
    """Run a scenario under the measured policy (or another)."""
    tokens, possible = [0.0] * len(scenario.phases), [0.0] * len(scenario.phases)
    steps, switches, lost = 0, 0, 0.0
    for run in simulate(scenario, policy or MeasuredDepthPolicy(prior=scenario.prior)):
        tokens[run.phase] += run.tokens
        possible[run.phase] += run.possible
        lost += run.lost_to_exploration
        steps += run.steps
        switches += run.switched
    phases = [t / p for t, p in zip(tokens, possible, strict=True)]
    return Result(
        name=scenario.name,
        share=sum(tokens) / sum(possible),
        worst_phase=min(phases),
        phases=phases,
        switches_per_1000_steps=1e3 * switches / steps,
        probe_share=max(0.0, lost) / sum(possible),
    )
