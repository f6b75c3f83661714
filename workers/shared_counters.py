"""Counts of one scheduler rank, in memory that the actor shares.

The scheduler writes after every decode step and never waits; the actor reads at tick rate and never disturbs it. A
sequence number that is odd during a write tells a reader to look again (a seqlock). Asking the scheduler instead would
cost it time that decode steps need.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_MAGIC = 0x5BEC_F1EE_0002
_SCALARS = (
    "sequence",
    "magic",
    "depths",
    "sizes",
    "revision",
    "at_step",
    "depth",
    "switches",
    "steps",
    "tokens",
    "requests",
    "batch",
    "draft_passes",
    "draft_set_aside",
    "draft_writes",
    "switches_kept",
)
_READ_TRIES = 1000
SWITCHES_KEPT = 256


@dataclass
class SharedCounters:
    """Arrays over one block of shared memory. `D` is the deepest candidate + 1, `B` the number of batch sizes."""

    scalars: NDArray[np.int64]  # [len(_SCALARS)]
    candidates: NDArray[np.int64]  # [D], 1 where the depth is a candidate
    sizes: NDArray[np.int64]  # [B], padded batch sizes in ascending order
    reached: NDArray[np.int64]  # [D], by draft position
    accepted: NDArray[np.int64]  # [D], by draft position
    step_count: NDArray[np.int64]  # [D, B]
    timed_count: NDArray[np.int64]  # [D, B]
    seconds: NDArray[np.float64]  # [D, B]
    switch_steps: NDArray[np.float64]  # [SWITCHES_KEPT, 4]: last first steps after a switch: from, to, batch size, seconds

    @classmethod
    def _over(cls, buffer: bytes | mmap.mmap, depths: int, sizes: int) -> SharedCounters:
        offset = 0

        def take(shape: tuple[int, ...], dtype: type[np.int64] | type[np.float64]) -> NDArray[np.int64]:
            nonlocal offset
            array = np.ndarray(shape, dtype, buffer, offset)
            offset += array.nbytes
            return array

        grid = (depths, sizes)
        return cls(
            take((len(_SCALARS),), np.int64), take((depths,), np.int64), take((sizes,), np.int64), take((depths,), np.int64),
            take((depths,), np.int64), take(grid, np.int64), take(grid, np.int64), take(grid, np.float64),  # type: ignore[arg-type]
            take((SWITCHES_KEPT, 4), np.float64),  # type: ignore[arg-type]
        )  # fmt: skip

    @classmethod
    def create(cls, path: Path, candidates: Sequence[int], sizes: Sequence[int]) -> SharedCounters:
        """Make the block; `path` appears only when it is complete."""
        depths = max(candidates) + 1
        length = 8 * (len(_SCALARS) + 3 * depths + len(sizes) + 3 * depths * len(sizes) + 4 * SWITCHES_KEPT)
        draft = path.with_suffix(".new")
        with open(draft, "w+b") as file:
            file.truncate(length)
            counters = cls._over(mmap.mmap(file.fileno(), length), depths, len(sizes))
        counters.sizes[:] = sizes
        counters.candidates[list(candidates)] = 1
        counters.put(magic=_MAGIC, depths=depths, sizes=len(sizes))
        draft.rename(path)
        return counters

    def put(self, **values: int) -> None:
        for name, value in values.items():
            self.scalars[_SCALARS.index(name)] = value

    def get(self, name: str) -> int:
        return int(self.scalars[_SCALARS.index(name)])

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.scalars[0] += 1
        yield
        self.scalars[0] += 1


class SharedCountersReader:
    """The actor's end of one rank's block."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        head = np.ndarray((len(_SCALARS),), np.int64, self._memory)
        if head[1] != _MAGIC:
            raise ValueError(f"{path} is no counter block of this version of specfleet")
        self._shape = int(head[2]), int(head[3])
        self._live = SharedCounters._over(self._memory, *self._shape)

    def read(self) -> SharedCounters:
        """Copy a block that no write cut through.

        Raises:
            RuntimeError: if the writer holds the block for too long (it died in the middle of a write).
        """
        for _ in range(_READ_TRIES):
            before = self._live.get("sequence")
            copy = SharedCounters._over(bytes(self._memory), *self._shape)
            if before % 2 == 0 and copy.get("sequence") == before == self._live.get("sequence"):
                return copy
        raise RuntimeError("the scheduler stopped in the middle of writing its counters")
