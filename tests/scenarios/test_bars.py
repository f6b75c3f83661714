"""What the measured policy promises, on simulated fleets. Prints its figures with `pytest -s`."""

from __future__ import annotations

import itertools
import random
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cluster.messages.profile import Profile
from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.simulation.evaluation import Result, evaluate
from cluster.simulation.scenario import Scenario
from cluster.simulation.simulator import simulate

H200 = Profile.load("h200_llama8b_eagle3").step_ms
ACCEPTANCES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9)
BATCHES = (1, 8, 32, 64, 128)
SCENARIOS = sorted((Path(__file__).parents[1] / "data" / "scenarios").glob("*.json"))


def scenario(phases: list[dict[str, Any]], prior: Any = "same", **fields: Any) -> Scenario:
    return Scenario.model_validate(
        {"name": "s", "step_ms": H200, "prior_step_ms": prior, "noise": 0.05, "seed": 7, "phases": phases, **fields}
    )


def grid(prior: Any, phases: int) -> list[Result]:
    """Every acceptance at every batch size, in phases of 4,000 steps. `prior` may be a function of a random source."""
    results = []
    for acceptance in ACCEPTANCES:
        for batch in BATCHES:
            steady = {"steps": 4000, "batch": batch, "acceptance": [acceptance]}
            given = prior(random.Random(f"{acceptance} {batch}")) if callable(prior) else prior
            results.append(evaluate(scenario([steady] * phases, given)))
    return results


def wrong_by_40_percent(source: random.Random) -> dict[int, dict[int, float]]:
    return {depth: {batch: ms * source.choice((0.6, 1.4)) for batch, ms in row.items()} for depth, row in H200.items()}


def test_with_the_right_prior() -> None:
    results = grid("same", phases=1)
    shares = [r.share for r in results]
    switches = max(r.switches_per_1000_steps for r in results)
    print(f"\nright prior: mean {statistics.mean(shares):.4f}, worst {min(shares):.4f}, ", end="")
    print(f"at most {switches:.1f} switches in 1,000 steps")
    assert statistics.mean(shares) >= 0.985
    assert min(shares) >= 0.96
    assert switches <= 5


@pytest.mark.parametrize("prior", [None, wrong_by_40_percent], ids=["none", "wrong"])
def test_after_learning_without_a_prior_or_with_a_wrong_one(prior: Any) -> None:
    results = grid(prior, phases=2)
    learnt = [r.phases[1] for r in results]
    print(f"\nafter 4,000 steps: mean {statistics.mean(learnt):.4f}, worst {min(learnt):.4f}; while learning: ", end="")
    print(f"mean {statistics.mean(r.phases[0] for r in results):.4f}")
    assert statistics.mean(learnt) >= 0.95


def by_second(world: Scenario) -> dict[int, dict[int, float]]:
    """Share in each second of each phase."""
    tokens: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    begins: dict[tuple[int, int], float] = {}
    for run in simulate(world, MeasuredDepthPolicy(prior=world.prior)):
        second = int(run.start - begins.setdefault((run.engine, run.phase), run.start))
        tokens[run.phase, second][0] += run.tokens
        tokens[run.phase, second][1] += run.possible
    shares: dict[int, dict[int, float]] = defaultdict(dict)
    for (phase, second), (got, possible) in tokens.items():
        shares[phase][second] = got / possible
    return shares


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("engines", [1, 4])
def test_acceptance_that_falls_and_climbs_back(batch: int, engines: int) -> None:
    def phase(acceptance: float, seconds: float) -> dict[str, Any]:
        return {"steps": int(seconds * 1e3 / H200[3][batch]), "batch": batch, "acceptance": [acceptance]}

    shares = by_second(scenario([phase(0.8, 20), phase(0.2, 60), phase(0.8, 60)], engines=engines))
    back = next(second for second in sorted(shares[2]) if all(s > 0.9 for t, s in shares[2].items() if t >= second))
    print(f"\nbatch {batch}, {engines} engines: after the fall {shares[1][2]:.3f}, back above 0.9 after {back} s")
    # A fleet that stayed on sees both changes at once; one that went off has to find out by exploring.
    assert min(share for second, share in shares[1].items() if second >= 2) > 0.9
    goes_off = 1 / H200[0][batch] > 1.2 / H200[1][batch]  # a step of depth 1 yields 1.2 tokens at an acceptance of 0.2
    assert back <= (30 if goes_off else 2)


@pytest.mark.parametrize("path", [p for p in SCENARIOS if p.stem.startswith("azure")], ids=lambda p: p.stem)
def test_batches_that_follow_real_arrivals(path: Path) -> None:
    world = Scenario.load(path)
    result = evaluate(world)
    (batches,) = [phase.batches for phase in world.phases]
    crossings = 1e3 * sum(a != b for a, b in itertools.pairwise(batches)) / len(batches)
    print(f"\n{path.stem}: share {result.share:.4f}, {result.switches_per_1000_steps:.1f} switches and ", end="")
    print(f"{crossings:.1f} crossings in 1,000 steps")
    assert result.share >= 0.97
    assert result.switches_per_1000_steps <= crossings / 10


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_every_shipped_scenario(path: Path) -> None:
    result = evaluate(Scenario.load(path))
    assert result.share >= 0.96
    assert result.worst_phase >= 0.93
    assert result.probe_share < 0.01
