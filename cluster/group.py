"""Engines that are alike: same group of the configuration, depths and batch sizes. They share costs and a table's grid."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cluster.acceptance import Floats
from cluster.choice import Indices, Mask, choose
from cluster.cost import CostModel
from cluster.profile import StepTimes
from cluster.protocol import EngineReport

NOT_RUN_S = 300.0  # how long a depth that an engine did not run though told to counts as one that it cannot run
NOT_RUN_STEPS = 3  # steps at another depth that show it
VISITS_S = 5.0  # half-life of what counts as the batch sizes that an engine runs at


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
        self._visits: Floats = np.zeros((0, len(self.floors)))
        self._visited_at: Floats = np.zeros(0)
        self._not_run_until: Floats = np.full((len(self.depths), len(self.floors)), -np.inf)

    def place(self, batch: int) -> int:
        """Index of the place on the grid that a batch size belongs to."""
        return max(0, bisect_right(self.floors, batch) - 1)

    def ran(self, now: float, steps: dict[tuple[int, int], int], told: dict[int, int]) -> None:
        """Learn from steps by (depth, batch) which depths are not run where a steady table tells to run them."""
        sizes = list(told)
        for (ran, batch), n in steps.items():
            depth = told[sizes[max(0, bisect_right(sizes, batch) - 1)]]
            if ran != depth and n >= NOT_RUN_STEPS and depth in self.depths and (depth, batch) not in steps:
                self._not_run_until[self.depths.index(depth), self.place(batch)] = now + NOT_RUN_S

    def runnable(self, now: float) -> Mask:
        """Which depths can be run, by (depth, batch); all of them where none can."""
        can: Mask = self._not_run_until <= now
        result: Mask = can | ~can.any(axis=0)
        return result

    def visited(self, now: float, places: Mapping[str, Mapping[int, float]]) -> None:
        """Note at which places engines ran, with the places' shares of their steps."""
        rows = np.array([self._row(engine) for engine in places], dtype=np.int64)
        fresh = [
            (row, p, share) for row, engine in zip(rows.tolist(), places, strict=True) for p, share in places[engine].items()
        ]
        self._visits[rows] *= 0.5 ** ((now - self._visited_at[rows]) / VISITS_S)[:, None]
        self._visited_at[rows] = now
        at, place, shares = zip(*fresh, strict=True)
        self._visits[list(at), list(place)] += shares

    def update(
        self, now: float, engines: list[str], log_goodput: Floats, gain: float, dwell_s: float, switch_steps: float
    ) -> Indices:
        """Choose anew for these engines, from log goodputs by (engine, depth, batch); return their rows."""
        rows = np.array([self._row(engine) for engine in engines], dtype=np.int64)
        before, visits = self.chosen[rows], self._visits[rows]
        shares = visits / np.maximum(visits.sum(axis=1, keepdims=True), 1e-9)
        free = now - self._changed_at[rows] >= dwell_s
        after = choose(log_goodput, before, free, shares, gain, switch_steps)
        self.chosen[rows] = after
        self._changed_at[rows] = np.where((after != before) & (before >= 0), now, self._changed_at[rows])
        return rows

    def _row(self, engine: str) -> int:
        if engine not in self.row:
            self.row[engine] = len(self.row)
            places = len(self.floors)
            self.chosen = np.vstack([self.chosen, np.full((1, places), -1)])
            self._changed_at = np.vstack([self._changed_at, np.full((1, places), -np.inf)])
            self._visits = np.vstack([self._visits, np.zeros((1, places))])
            self._visited_at = np.append(self._visited_at, -np.inf)
        return self.row[engine]

    def forget(self, engine: str) -> None:
        """Drop an engine that is no more."""
        row = self.row.pop(engine, None)
        if row is not None:
            self.chosen = np.delete(self.chosen, row, axis=0)
            self._changed_at = np.delete(self._changed_at, row, axis=0)
            self._visits = np.delete(self._visits, row, axis=0)
            self._visited_at = np.delete(self._visited_at, row)
            self.row = {name: r - (r > row) for name, r in self.row.items()}
