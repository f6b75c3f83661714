"""Goodput by engine, depth and batch bucket, and the figures that it follows from.

At a batch of B requests a step at depth k yields, bonus tokens included,

    B E_k tokens,    E_k = 1 + a_1 + a_1 a_2 + ... + a_1 a_2 ... a_k,

where a_i is the conditional acceptance at position i (Leviathan et al., Fast Inference from Transformers via Speculative
Decoding, 2023, for a constant a). The step takes t_k seconds, so its goodput is B E_k / t_k. A request waits t_k / E_k for a
token (TPOT). At a given batch size the depth of best goodput therefore has the best TPOT too, and a limit on TPOT decides
between depths only where hysteresis would keep one that breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cluster.policy.acceptance import AcceptanceEstimate
from cluster.policy.arrays import Floats, Mask
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.step_time import StepTimeFit


def expected_tokens(acceptance: Floats, depths: Sequence[int]) -> Floats:
    """E_k of each depth (last axis), from conditional acceptances by position (last axis)."""
    reached = np.cumprod(acceptance, axis=-1)
    yields = np.concatenate([np.zeros((*acceptance.shape[:-1], 1)), np.cumsum(reached, axis=-1)], axis=-1)
    result: Floats = 1.0 + yields[..., np.array(depths, dtype=np.int64)]
    return result


def within_limit(log_goodput: Floats, tpot_s: Floats, limit_s: float) -> Floats:
    """Rule out depths whose TPOT breaks the limit, at batch sizes where any depth meets it. Arrays end in (depth, batch)."""
    meets = tpot_s <= limit_s
    result: Floats = np.where(meets | ~meets.any(axis=-2, keepdims=True), log_goodput, -np.inf)
    return result


@dataclass(frozen=True)
class GoodputEstimate:
    """What is known about a cohort's engines at one tick. Depths and batch buckets are axes, by index."""

    depths: tuple[int, ...]
    buckets: BatchBuckets
    acceptance: AcceptanceEstimate  # by engine and position
    step_times: StepTimeFit  # by (depth, bucket)
    runnable: Mask  # by (depth, bucket)

    @cached_property
    def log_tokens(self) -> Floats:
        """Logarithm of E_k, by (engine, depth)."""
        result: Floats = np.log(expected_tokens(self.acceptance.mean, self.depths))
        return result

    @cached_property
    def log_rate(self) -> Floats:
        """Logarithm of one request's tokens a second, by (engine, depth, bucket): that of the goodput, less that of B."""
        result: Floats = self.log_tokens[:, :, None] - self.step_times.log_s
        return result

    def allowed(self, tpot_limit_ms: float | None) -> Floats:
        """`log_rate`, but minus infinity for depths that cannot be run or that break the limit on TPOT."""
        runnable: Floats = np.where(self.runnable, self.log_rate, -np.inf)
        return runnable if tpot_limit_ms is None else within_limit(runnable, np.exp(-self.log_rate), tpot_limit_ms / 1e3)
