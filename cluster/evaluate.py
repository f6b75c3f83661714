"""`python -m cluster.evaluate SCENARIO.json...`: how near a policy comes to an oracle, one JSON object a line.

A scenario is a `cluster.simulation.scenario.Scenario`; `cluster.simulation.simulator` says how shares are reckoned.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.policy.plan import Policy
from cluster.simulation.scenario import Scenario
from cluster.simulation.simulator import simulate


@dataclass(frozen=True)
class Result:
    """What came out of a scenario."""

    name: str
    share: float  # goodput over the oracle's
    worst_phase: float
    phases: list[float]
    switches_per_1000_steps: float  # changes of depth between two steps of an engine
    probe_share: float  # goodput that probes cost, over the oracle's


def evaluate(scenario: Scenario, policy: Policy | None = None) -> Result:
    """Run a scenario under the measured policy (or another)."""
    tokens, possible = [0.0] * len(scenario.phases), [0.0] * len(scenario.phases)
    steps, switches, lost = 0, 0, 0.0
    for run in simulate(scenario, policy or MeasuredDepthPolicy(prior=scenario.prior)):
        tokens[run.phase] += run.tokens
        possible[run.phase] += run.possible
        lost += run.lost_to_probe
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


def load(path: str) -> Scenario:
    """Read a scenario; a ValueError says what is wrong with which field."""
    try:
        return Scenario.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path}: {where + ': ' if where else ''}{first['msg']}") from error


def main(paths: Sequence[str]) -> int:
    """Evaluate every file; 2 if one of them is no scenario."""
    if not paths or paths[0] in ("-h", "--help"):
        print("usage: python -m cluster.evaluate SCENARIO.json...", file=sys.stdout if paths else sys.stderr)
        return 0 if paths else 2
    try:
        scenarios = [load(path) for path in paths]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for scenario in scenarios:
        print(json.dumps(asdict(evaluate(scenario))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
