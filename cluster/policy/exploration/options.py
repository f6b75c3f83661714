"""What an engine could explore, what it would cost, and how long it would take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import expm1

import numpy as np

from cluster.policy.exploration.engine_view import EngineView

ACCEPTANCE_LUCK = 1.25  # standard deviations by which acceptance may surprise in a trial
STEP_TIME_LUCK = 2.0  # standard deviations by which the ratio of step times may
BETTER_DRAFT = 0.9  # acceptance that a recheck hopes for
SAMPLES = 24  # drafts at the first position that an exploration needs
STEPS = 3  # steps that it needs


def trials(view: EngineView, log_gain: float, allowed: Callable[[int, int], bool]) -> dict[int, int]:
    """In each main bucket, the depth of the best optimistic goodput, where that beats the present one by `log_gain`.

    Returns indices of depths by bucket. `allowed` tells by bucket and depth which trials may be made.
    """
    found: dict[int, int] = {}
    hoped = view.acceptance + ACCEPTANCE_LUCK * view.deviation
    for bucket in view.main_buckets():
        current = view.current(bucket)
        bar = view.goodput(bucket, current) + log_gain
        hopeful = view.hopeful_goodput(bucket, hoped)
        for depth in range(len(view.depths)):
            if depth == current or not view.runnable[depth, bucket] or not allowed(bucket, depth):
                continue
            hope = hopeful[depth] + STEP_TIME_LUCK * view.step_times.ratio_deviation(depth, current, bucket)
            if hope > bar:
                found[bucket], bar = depth, hope
    return found


def rechecks(view: EngineView, log_gain: float) -> dict[int, int]:
    """In each main bucket, the shallowest deeper depth that would pay with a good draft. Indices of depths by bucket."""
    found: dict[int, int] = {}
    hoped = np.maximum(view.acceptance, BETTER_DRAFT)
    for bucket in view.main_buckets():
        current = view.current(bucket)
        pays = view.hopeful_goodput(bucket, hoped) > view.goodput(bucket, current) + log_gain
        deeper = [depth for depth in range(current + 1, len(view.depths)) if pays[depth] and view.runnable[depth, bucket]]
        if deeper:
            found[bucket] = deeper[0]
    return found


def loss(view: EngineView, depths: Mapping[int, int]) -> float:
    """Share of the engine's goodput that trying these depths is expected to cost."""
    return sum(view.shares[bucket] * max(0.0, -expm1(view.gain(bucket, depth))) for bucket, depth in depths.items())


def seconds(view: EngineView, depths: Mapping[int, int]) -> float:
    """Seconds until trying these depths has shown enough."""
    share = sum(view.shares[bucket] for bucket in depths)
    batch = sum(view.shares[bucket] * view.buckets.sizes[bucket] for bucket in depths) / share
    log_s = view.step_times.log_s
    step_s = sum(view.shares[bucket] * float(np.exp(log_s[depth, bucket])) for bucket, depth in depths.items()) / share
    others_s = view.step_s * (1.0 - share) / share  # of steps in other buckets, which run in between
    return max(STEPS, SAMPLES / batch) * (step_s + others_s)
