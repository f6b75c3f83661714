"""Batch buckets: ranges of batch sizes, each with one entry in a table of depths."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster.policy.arrays import Indices

EXACT = 16
"""Up to this batch size, every size is a bucket of its own where an engine pads to none."""
PER_OCTAVE = 8
"""Buckets between a batch size and its double, above `EXACT`."""


@dataclass(frozen=True)
class BatchBuckets:
    """Ascending ranges that cover all batch sizes. The first also covers what lies below it, the last what lies above."""

    floors: tuple[int, ...]  # smallest batch size of each bucket
    sizes: tuple[float, ...]  # batch size that stands for each bucket

    @classmethod
    def of(cls, padded: Sequence[int], max_running: int) -> BatchBuckets:
        """One bucket for each size that steps are padded to; without padding, a grid up to `max_running` requests."""
        if padded:
            floors = tuple(sorted(set(padded)))
            return cls(floors, tuple(map(float, floors)))
        grid = list(range(1, EXACT + 1))
        step = EXACT // PER_OCTAVE
        while grid[-1] < max_running:
            grid += range(grid[-1] + step, 2 * grid[-1] + 1, step)
            step *= 2
        floors = tuple(batch for batch in grid if batch <= max_running)
        ends = (*floors[1:], floors[-1] + 1)
        return cls(floors, tuple((floor + end - 1) / 2 for floor, end in zip(floors, ends, strict=True)))

    def __len__(self) -> int:
        return len(self.floors)

    def find(self, batch: int) -> int:
        """Index of the bucket that a batch size falls into."""
        return max(0, bisect_right(self.floors, batch) - 1)

    def find_all(self, batches: Sequence[int]) -> Indices:
        """The same for many batch sizes at once."""
        found: Indices = np.maximum(0, np.searchsorted(self.floors, batches, side="right") - 1)
        return found
