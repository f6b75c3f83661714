"""The arithmetic of a choice: expected tokens, goodput, and which depth to take.

At a batch of B requests a step at depth k yields B E_k tokens in t_k seconds, so its goodput is B E_k / t_k, and the time
that a request waits for a token (TPOT) is t_k / E_k: at a given batch size the depth of best goodput also has the best
TPOT. A TPOT limit therefore decides between depths only where hysteresis would keep one that breaks it.

Preferring depth l over k < l means E_l / E_k > t_l / t_k. The left side never falls as any acceptance rises (the tokens at
positions k+1..l gain at least as much, relatively, as those up to k), so neither does the chosen depth; and where each
further draft step gets relatively dearer, it never rises. Both stay true with hysteresis from the same current depth, and
with a price on crossings of batch sizes, which grows with the distance of the depths: costs of this form are submodular, so
their minimiser moves with the goodputs (Topkis).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cluster.policy.acceptance import Floats

Indices: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

_NEVER = 1e3  # log goodput that no depth lacks
_UNVISITED = 1e-6  # weight of batch sizes at which an engine does not run: their entries are chosen on their own


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


def choose(log_goodput: Floats, current: Indices, free: Mask, visits: Floats, gain: float, switch_steps: float) -> Indices:
    """Index of the depth to take, by (engine, batch), from `log_goodput` by (engine, depth, batch).

    Of each engine it is the table of least cost, where a depth costs, as a logarithm, the goodput that it lacks to the
    best, and `gain` if it is not the current one (-1: there is none); both weighted by the engine's `visits` to the batch
    size. Depths of neighbouring batch sizes that differ cost `switch_steps` steps at each crossing, which is taken to be
    as frequent as the less visited of the two. Without `free` (the dwell time is not over) the current depth stays,
    unless it is ruled out.
    """
    cost = np.minimum(log_goodput.max(axis=1, keepdims=True) - log_goodput, _NEVER)
    known, at = current >= 0, np.maximum(current, 0)[:, None, :]
    stay = np.take_along_axis(cost, at, axis=1)
    held = known & ~free & (stay[:, 0] < _NEVER)
    cost += np.where(known, np.where(held, _NEVER, np.log1p(gain)), 0.0)[:, None, :]
    np.put_along_axis(cost, at, stay, axis=1)
    crossings = np.minimum(visits[:, :-1], visits[:, 1:])
    if switch_steps == 0 or not crossings.any():
        independent: Indices = cost.argmin(axis=1)
        return independent
    return _least(cost * (visits + _UNVISITED)[:, None, :], crossings * switch_steps)


def _least(cost: Floats, crossing: Floats) -> Indices:
    """The path of least cost through each engine's batch sizes: a step over d depths costs d times `crossing`."""
    engines, depths, batches = cost.shape
    # Engines come last here, so that numpy runs along them.
    total, crossing = np.array(cost.transpose(2, 1, 0), order="C"), np.ascontiguousarray(crossing.T)
    index = np.arange(depths)
    apart = np.abs(index[:, None] - index)[:, :, None]
    for b in range(1, batches):
        total[b] += (total[b - 1] + apart * crossing[b - 1]).min(axis=1)
    path = np.empty((batches, engines), dtype=np.int64)
    path[-1] = total[-1].argmin(axis=0)
    for b in range(batches - 1, 0, -1):
        path[b - 1] = (total[b - 1] + np.abs(index[:, None] - path[b]) * crossing[b - 1]).argmin(axis=0)
    return path.T
