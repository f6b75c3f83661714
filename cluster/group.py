"""Engines that are alike: same group of the configuration, depths and batch sizes. They share costs and a table's grid."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from cluster.acceptance import Floats
from cluster.choice import Indices, Mask, choose
from cluster.cost import CostModel
from cluster.profile import StepTimes
from cluster.protocol import EngineReport

NOT_RUN_S = 300.0  # how long a depth that an engine did not run though told to counts as one that it cannot run
NOT_RUN_STEPS = 3  # steps at another depth that show it


class Kind(NamedTuple):
    """What makes engines alike."""

    name: str
    depths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    max_running: int

    @classmethod
    def of(cls, engine: str, report: EngineReport) -> Kind:
        """Engines NAME-0, NAME-1, ... (with or without the digest of an actor's name) are of the group NAME."""
        name = re.sub(r"-\d+(-[0-9a-f]{8})?$", "", engine)
        return cls(name, tuple(sorted(report.candidate_depths)), report.batch_sizes, report.load.max_running)

    def floors(self) -> tuple[int, ...]:
        """Batch sizes at which a place of the table's grid begins: the padded ones, else eight to an octave."""
        if self.batch_sizes:
            return tuple(sorted(set(self.batch_sizes)))
        grid, step = list(range(1, 17)), 2
        while grid[-1] < self.max_running:
            grid += range(grid[-1] + step, 2 * grid[-1] + 1, step)
            step *= 2
        return tuple(b for b in grid if b <= self.max_running)


class Group:
    """Costs and present choices of one kind of engines."""

    def __init__(self, kind: Kind, prior: StepTimes | None) -> None:
        self.kind = kind
        self.depths = kind.depths
        self.floors = kind.floors()
        ends = (*self.floors[1:], self.floors[-1] + 1)
        padded = bool(kind.batch_sizes)
        self.batches = tuple(float(b) if padded else (b + end - 1) / 2 for b, end in zip(self.floors, ends, strict=True))
        self.cost = CostModel(self.depths, self.batches, self.floors, prior)
        self.row: dict[str, int] = {}
        self.chosen: Indices = np.zeros((0, len(self.floors)), dtype=np.int64)
        self._changed_at: Floats = np.zeros((0, len(self.floors)))
        self._not_run_until: Floats = np.full((len(self.depths), len(self.floors)), -np.inf)

    def place(self, batch: int) -> int:
        """Index of the place on the grid that a batch size belongs to."""
        return max(0, bisect_right(self.floors, batch) - 1)

    def ran(self, now: float, steps: dict[tuple[int, int], int], told: dict[int, int]) -> None:
        """Learn from steps by (depth, batch) which depths are not run where a steady table tells to run them."""
        at: dict[int, dict[int, int]] = {}
        for (depth, batch), n in steps.items():
            at.setdefault(batch, {})[depth] = n
        sizes = list(told)
        for batch, ran in at.items():
            depth = told[sizes[max(0, bisect_right(sizes, batch) - 1)]]
            if depth in self.depths and depth not in ran and sum(ran.values()) >= NOT_RUN_STEPS:
                self._not_run_until[self.depths.index(depth), self.place(batch)] = now + NOT_RUN_S

    def runnable(self, now: float) -> Mask:
        """Which depths can be run, by (depth, batch); all of them where none can."""
        can: Mask = self._not_run_until <= now
        result: Mask = can | ~can.any(axis=0)
        return result

    def update(self, now: float, engines: list[str], log_goodput: Floats, gain: float, dwell_s: float) -> Indices:
        """Choose anew for these engines, from log goodputs by (engine, depth, batch); return their rows."""
        fresh = [engine not in self.row for engine in engines]
        for engine, is_fresh in zip(engines, fresh, strict=True):
            if is_fresh:
                self.row[engine] = len(self.row)
        extra = len(self.row) - len(self.chosen)
        if extra:
            self.chosen = np.vstack([self.chosen, np.zeros((extra, len(self.floors)), dtype=np.int64)])
            self._changed_at = np.vstack([self._changed_at, np.full((extra, len(self.floors)), -np.inf)])
        rows = np.array([self.row[engine] for engine in engines], dtype=np.int64)
        before = self.chosen[rows]
        after = choose(log_goodput, before, gain, now - self._changed_at[rows] >= dwell_s)
        after = np.where(np.array(fresh)[:, None], log_goodput.argmax(axis=1), after)
        self.chosen[rows] = after
        self._changed_at[rows] = np.where((after != before) & ~np.array(fresh)[:, None], now, self._changed_at[rows])
        return rows

    def forget(self, engine: str) -> None:
        """Drop an engine that is no more."""
        row = self.row.pop(engine, None)
        if row is not None:
            self.chosen = np.delete(self.chosen, row, axis=0)
            self._changed_at = np.delete(self._changed_at, row, axis=0)
            self.row = {name: r - (r > row) for name, r in self.row.items()}
