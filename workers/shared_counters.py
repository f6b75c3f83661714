"""Counters of one rank, in memory that its scheduler process shares with the actor.

The scheduler writes at every decode step and never waits. The actor reads at tick rate and never disturbs it: a sequence
number that is odd during a write tells a reader that its copy may be torn (a seqlock). Asking the scheduler instead would
cost it time that decode steps need.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SWITCHES_KEPT = 256

_MAGIC = 0x5BEC_F1EE_0003
_HEADER = [("magic", np.int64), ("depth_count", np.int64), ("size_count", np.int64)]
_RETRY_S = 0.001


def _layout(depths: int, sizes: int) -> np.dtype[np.void]:
    """The block of an engine whose deepest depth is `depths` - 1 and that pads to `sizes` batch sizes."""
    counts = ("sequence", "revision", "at_step", "depth", "batch", "steps", "switches", "tokens", "requests")
    draft = ("draft_passes", "draft_deferred", "draft_writes")
    return np.dtype(
        [
            *_HEADER,
            *[(name, np.int64) for name in (*counts, *draft)],
            ("candidates", np.int64, depths),
            ("sizes", np.int64, sizes),
            ("reached", np.int64, depths),
            ("accepted", np.int64, depths),
            ("step_count", np.int64, (depths, sizes)),
            ("timed_count", np.int64, (depths, sizes)),
            ("seconds", np.float64, (depths, sizes)),
            ("switches_kept", np.int64),
            ("switch_steps", np.float64, (SWITCHES_KEPT, 4)),
        ]
    )


class SharedCounters:
    """The fields of one block as arrays. `D` is the deepest candidate + 1, `B` the number of batch sizes.

    A single number is an array of no dimensions: `int(counters.steps)` reads it, `counters.steps[()] += 1` counts.
    """

    sequence: NDArray[np.int64]  # odd during a write
    revision: NDArray[np.int64]  # of the table in force
    at_step: NDArray[np.int64]  # steps launched when that table was put in force
    depth: NDArray[np.int64]  # of the last step
    batch: NDArray[np.int64]  # requests in the last step
    steps: NDArray[np.int64]  # launched
    switches: NDArray[np.int64]  # changes of depth between two steps
    tokens: NDArray[np.int64]  # that steps yielded, bonus tokens included
    requests: NDArray[np.int64]  # steps summed over their requests
    draft_passes: NDArray[np.int64]
    draft_deferred: NDArray[np.int64]
    draft_writes: NDArray[np.int64]
    candidates: NDArray[np.int64]  # [D], 1 where the depth is a candidate
    sizes: NDArray[np.int64]  # [B], padded batch sizes in ascending order
    reached: NDArray[np.int64]  # [D], by draft position
    accepted: NDArray[np.int64]  # [D], by draft position
    step_count: NDArray[np.int64]  # [D, B]
    timed_count: NDArray[np.int64]  # [D, B]
    seconds: NDArray[np.float64]  # [D, B]
    switches_kept: NDArray[np.int64]  # rows ever written to `switch_steps`, a ring
    switch_steps: NDArray[np.float64]  # [SWITCHES_KEPT, 4], first steps after a switch: from, to, batch size, seconds

    def __init__(self, block: NDArray[np.void]) -> None:
        vars(self).update({name: block[name] for name in block.dtype.names or ()})

    @classmethod
    def create(cls, path: Path, candidates: Sequence[int], sizes: Sequence[int]) -> SharedCounters:
        """Make the block; `path` appears only when it is complete."""
        layout = _layout(max(candidates) + 1, len(sizes))
        unfinished = path.with_suffix(".new")
        with open(unfinished, "w+b") as file:
            file.truncate(layout.itemsize)
            block: NDArray[np.void] = np.ndarray((), layout, mmap.mmap(file.fileno(), layout.itemsize))
        block["magic"], block["depth_count"], block["size_count"] = _MAGIC, max(candidates) + 1, len(sizes)
        block["sizes"] = sizes
        block["candidates"][list(candidates)] = 1
        unfinished.rename(path)
        return cls(block)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Everything that is written inside appears to a reader at once."""
        self.sequence[()] += 1
        yield
        self.sequence[()] += 1


class SharedCountersReader:
    """The actor's end of one rank's block."""

    def __init__(self, path: Path) -> None:
        """Map the block; its file may be deleted afterwards.

        Raises:
            ValueError: if the file is no block of this version.
        """
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header: NDArray[np.void] = np.ndarray((), np.dtype(_HEADER), self._memory)
        if header["magic"] != _MAGIC:
            raise ValueError(f"{path} is no counter block of this version of specfleet")
        self._layout = _layout(int(header["depth_count"]), int(header["size_count"]))
        self._live = SharedCounters(np.ndarray((), self._layout, self._memory))

    def try_read(self) -> SharedCounters | None:
        """A copy of the block; None if a write cut through it."""
        before = int(self._live.sequence)
        copy = SharedCounters(np.ndarray((), self._layout, bytes(self._memory)))
        whole = before % 2 == 0 and before == int(copy.sequence) == int(self._live.sequence)
        return copy if whole else None

    async def read(self) -> SharedCounters:
        """A copy of the block that no write cut through.

        A writer that is off its core in the middle of a write is waited for, however long that takes: it is only slow. One
        that has died is found by its process.
        """
        while (copy := self.try_read()) is None:
            await asyncio.sleep(_RETRY_S)
        return copy
