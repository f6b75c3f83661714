"""Which depths engines can run at which batch sizes, learnt from what they do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from cluster.policy.arrays import Floats, Mask
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.report_delta import StepDelta

RULED_OUT_S = 300.0
"""How long a depth counts as not runnable after an engine was told to run it and did not, in seconds."""
STEPS = 3
"""Steps at another depth that rule a depth out."""
ENGINES_PER_TICK = 32
"""Engines checked in a tick. They take turns."""


class RunnableDepths:
    """Depths that a cohort's engines can run, by batch bucket. An engine may lack CUDA graphs for some."""

    def __init__(self, depths: Sequence[int], buckets: BatchBuckets) -> None:
        self._depths = tuple(depths)
        self._buckets = buckets
        self._ruled_out_until: Floats = np.full((len(self._depths), len(buckets)), -np.inf)
        self._turn = 0

    def observe(self, now: float, new: StepDelta) -> None:
        """Rule out depths that a steady table asked for and that were not run; `now` is in seconds."""
        if not new.owner:
            return
        self._turn = (self._turn + ENGINES_PER_TICK) % len(new.engines)
        start = bisect_left(new.owner, self._turn)
        end = bisect_left(new.owner, self._turn + ENGINES_PER_TICK)
        ran = set(zip(new.owner[start:end], new.depth[start:end], new.batch[start:end], strict=True))
        for i in range(start, end):
            owner, batch, table = new.owner[i], new.batch[i], new.tables[new.owner[i]]
            if table is None or new.steps[i] < STEPS:
                continue
            told = table.depth(batch)
            if told in self._depths and (owner, told, batch) not in ran:
                self._ruled_out_until[self._depths.index(told), self._buckets.find(batch)] = now + RULED_OUT_S

    def mask(self, now: float) -> Mask:
        """By (depth, batch bucket), whether the depth can be run. Where all are ruled out, all count as runnable."""
        can: Mask = self._ruled_out_until <= now
        result: Mask = can | ~can.any(axis=0)
        return result
