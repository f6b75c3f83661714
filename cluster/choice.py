"""The arithmetic of a choice: expected tokens, goodput, and which depth to take.

At a batch of B requests a step at depth k yields B E_k tokens in t_k seconds, so its goodput is B E_k / t_k, and the time
that a request waits for a token (TPOT) is t_k / E_k: at a given batch size the depth of best goodput also has the best
TPOT. A TPOT limit therefore decides between depths only where hysteresis would keep one that breaks it.

Preferring depth l over k < l means E_l / E_k > t_l / t_k. The left side never falls as any acceptance rises (the tokens at
positions k+1..l gain at least as much, relatively, as those up to k), so neither does the chosen depth; and where each
further draft step gets relatively dearer, it never rises. Both stay true with hysteresis, from the same current depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cluster.acceptance import Floats

Indices: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


def expected_tokens(acceptance: Floats, depths: Sequence[int]) -> Floats:
    """E_k of each depth (last axis), from conditional acceptances by position (last axis)."""
    reached = np.cumprod(acceptance, axis=-1)
    yields = np.concatenate([np.zeros((*acceptance.shape[:-1], 1)), np.cumsum(reached, axis=-1)], axis=-1)
    result: Floats = 1.0 + yields[..., np.array(depths, dtype=np.int64)]
    return result


def within_limit(log_goodput: Floats, tpot_s: Floats, limit_s: float | None) -> Floats:
    """Rule out depths whose TPOT breaks the limit, at batch sizes where any depth meets it. Arrays end in (depth, batch)."""
    if limit_s is None:
        return log_goodput
    meets = tpot_s <= limit_s
    result: Floats = np.where(meets | ~meets.any(axis=-2, keepdims=True), log_goodput, -np.inf)
    return result


def choose(log_goodput: Floats, current: Indices, gain: float, free: Mask) -> Indices:
    """Index of the depth to take, by (engine, batch), from `log_goodput` by (engine, depth, batch).

    The current depth stays unless another is better by the relative `gain` and the dwell time is over (`free`), or unless
    it is ruled out. Of equals the shallowest is taken.
    """
    best = log_goodput.argmax(axis=1)
    of_best = np.take_along_axis(log_goodput, best[:, None, :], axis=1)[:, 0, :]
    of_current = np.take_along_axis(log_goodput, current[:, None, :], axis=1)[:, 0, :]
    ruled_out = np.isneginf(of_current)
    better = of_best > of_current + np.log1p(gain)
    result: Indices = np.where(ruled_out | (better & free), best, current)
    return result
