"""The choice of a depth for each engine and batch bucket, with hysteresis.

Depth l > k is preferred to k where E_l / E_k > t_l / t_k (see `cluster.policy.goodput`). The left side never falls as any
acceptance rises: the tokens at positions k+1..l gain at least as much, relatively, as those up to k. So a higher acceptance
never lowers the chosen depth. Where each further draft step gets relatively dearer, the depth never rises. Both stay true with
hysteresis from the same current depth. They also stay true with a price on differences between neighbouring batch buckets that
grows with the distance of the depths: such costs are submodular, so their minimiser moves with the goodputs (Topkis,
Minimizing a Submodular Function on a Lattice, 1978).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster.messages.settings import PolicySettings
from cluster.policy.arrays import Floats, Indices, Mask
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.engine_rows import EngineRows

_NEVER = 1e3  # a cost, as log goodput, that no depth has
_UNVISITED = 1e-6  # weight of buckets in which an engine does not run: it lets them have choices of their own


class DepthChoices:
    """The depth that each engine of a cohort has in each batch bucket, and since when."""

    def __init__(self, buckets: BatchBuckets) -> None:
        size = (len(buckets),)
        dtype = np.dtype([("depth", np.int64, size), ("changed_at", np.float64, size)])
        self._engines = EngineRows(np.array((-1, -np.inf), dtype))

    def update(
        self, now: float, engines: Sequence[str], log_goodput: Floats, shares: Floats, settings: PolicySettings
    ) -> Indices:
        """Choose again. Returns the index of the depth by (engine, bucket).

        `log_goodput` is by (engine, depth, bucket), `shares` by (engine, bucket): where the engine's steps run. A depth is left
        only for a gain of `switch_gain`, and not before it is `dwell_s` old.
        """
        rows = self._engines.find(engines)
        current, changed_at = self._engines["depth"], self._engines["changed_at"]
        before, since = current[rows], changed_at[rows]
        free = now - since >= settings.dwell_s
        after = choose(log_goodput, before, free, shares, settings.switch_gain, settings.switch_steps)
        current[rows] = after
        changed_at[rows] = np.where((after != before) & (before >= 0), now, since)
        return after

    def __contains__(self, engine: str) -> bool:
        return engine in self._engines

    def of(self, engine: str) -> Indices:
        """The index of an engine's depth, by bucket."""
        depths: Indices = self._engines.values("depth", [engine])[0]
        return depths

    def forget(self, engine: str) -> None:
        """Drop an engine that is gone."""
        self._engines.forget(engine)


def choose(log_goodput: Floats, current: Indices, free: Mask, shares: Floats, gain: float, switch_steps: float) -> Indices:
    """Index of the best depth by (engine, bucket), from `log_goodput` by (engine, depth, bucket).

    Each engine gets the table of least cost. A depth costs what its log goodput lacks compared with the best, plus log(1 + gain)
    if it is not the `current` one (-1: there is none). Each bucket weighs as much as its share of the engine's steps. Where
    neighbouring buckets differ by d candidates, each crossing costs d `switch_steps` steps; crossings are assumed as frequent as
    steps in the less visited bucket. Where `free` is false (the dwell time is not over) the current depth stays, unless it is
    ruled out.
    """
    cost = np.minimum(log_goodput.max(axis=1, keepdims=True) - log_goodput, _NEVER)
    known, at = current >= 0, np.maximum(current, 0)[:, None, :]
    stay = np.take_along_axis(cost, at, axis=1)
    held = known & ~free & (stay[:, 0] < _NEVER)
    cost += np.where(known, np.where(held, _NEVER, np.log1p(gain)), 0.0)[:, None, :]
    np.put_along_axis(cost, at, stay, axis=1)
    crossings = np.minimum(shares[:, :-1], shares[:, 1:])
    if switch_steps == 0 or not crossings.any():
        independent: Indices = cost.argmin(axis=1)
        return independent
    return _cheapest_path(cost * (shares + _UNVISITED)[:, None, :], crossings * switch_steps)


def _cheapest_path(cost: Floats, crossing: Floats) -> Indices:
    """The path of least cost through each engine's buckets (Viterbi). A change by d candidates costs d times `crossing`."""
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
