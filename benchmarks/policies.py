"""The measured policy beside simpler ones, on one grid. Prints a Markdown table.

    python -m benchmarks.policies

The grid: acceptance 0.2, 0.4, 0.6, 0.7, 0.8 and 0.9 at batch 1, 8, 32, 64 and 128, each alone for 4,000 steps, with the
step times of the packaged H200 profile. Shares are of an oracle's goodput. SGLang's own adaptive policy is its class with its
default settings; it gets the accepted drafts of every step, as it does from SGLang's worker.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams

from cluster.messages.profile import Profile
from cluster.policy.goodput import expected_tokens
from cluster.simulation.evaluation import evaluate
from cluster.simulation.scenario import Scenario

ACCEPTANCES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9)
BATCHES = (1, 8, 32, 64, 128)
STEPS = 4000
PROFILE = Profile.load("h200_llama8b_eagle3")
DEEPEST = 7  # of SGLang's candidates


def measured(acceptance: float, batch: int) -> tuple[float, float]:
    """Share and switches in 1,000 steps of the measured policy, with the profile as its prior."""
    phase = {"steps": STEPS, "batch": batch, "acceptance": [acceptance]}
    fields = {"name": "grid", "step_ms": PROFILE.step_ms, "prior_step_ms": "same", "noise": 0.05, "phases": [phase]}
    result = evaluate(Scenario.model_validate(fields))
    return result.share, result.switches_per_1000_steps


def sglang_default(acceptance: float, batch: int) -> tuple[float, float]:
    """The same for SGLang's `--speculative-adaptive` with its defaults."""
    policy = AdaptiveSpeculativeParams(initial_steps=3)
    random = np.random.default_rng(0)
    depths = []
    for _ in range(STEPS):
        depth = policy.get_steps_for_batch(batch)
        depths.append(depth)
        # A draft is accepted up to its first refusal.
        correct = np.minimum(random.geometric(1 - acceptance, batch) - 1, depth)
        policy.on_verify_complete(correct.tolist(), batch)
    return _share(depths, acceptance, batch)


def threshold_at_32(acceptance: float, batch: int) -> tuple[float, float]:
    """The same for a fixed threshold on the batch size."""
    return _share([3 if batch < 32 else 0] * STEPS, acceptance, batch)


def always_3(acceptance: float, batch: int) -> tuple[float, float]:
    """The same for one fixed depth."""
    return _share([3] * STEPS, acceptance, batch)


def _share(depths: Sequence[int], acceptance: float, batch: int) -> tuple[float, float]:
    """Share and switches in 1,000 steps of a sequence of depths. The oracle has the profile's depths to choose from."""
    tokens = expected_tokens(np.full(DEEPEST, acceptance), range(DEEPEST + 1))
    best = max(tokens[k] / PROFILE.ms(k, batch) for k in PROFILE.depths)
    got = sum(tokens[k] for k in depths)
    possible = sum(PROFILE.ms(k, batch) for k in depths) * best
    switches = sum(a != b for a, b in pairwise(depths))
    return float(got / possible), 1e3 * switches / len(depths)


def main() -> None:
    logging.disable(logging.INFO)  # SGLang's policy logs every change
    policies: dict[str, Callable[[float, int], tuple[float, float]]] = {
        "measured (specfleet)": measured,
        "SGLang `--speculative-adaptive`, default": sglang_default,
        "depth 3 below batch 32, else off": threshold_at_32,
        "depth 3 always": always_3,
    }
    print("| policy | mean share | worst share | most switches in 1,000 steps |")
    print("| --- | --- | --- | --- |")
    for name, policy in policies.items():
        shares, switches = zip(*[policy(a, b) for a in ACCEPTANCES for b in BATCHES], strict=True)
        print(f"| {name} | {statistics.mean(shares):.3f} | {min(shares):.3f} | {max(switches):.1f} |", flush=True)


if __name__ == "__main__":
    main()
