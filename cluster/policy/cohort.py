"""Engines that are alike: same group of the configuration, depths and batch sizes. They share costs and a table's grid."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cluster.messages.directive import DepthTable
from cluster.messages.profile import StepTimes
from cluster.messages.report import EngineReport
from cluster.policy.acceptance import Floats
from cluster.policy.depth_choice import Indices, Mask, choose
from cluster.policy.report_delta import Steps
from cluster.policy.step_time import StepTimeModel

NOT_RUN_S = 300.0  # how long a depth that an engine did not run though told to counts as one that it cannot run
NOT_RUN_STEPS = 3  # steps at another depth that show it
CHECKED = 32  # engines looked at for that in a tick
TABLES = 10_000  # kept, so that engines of equal choices share one
VISITS_S = 5.0  # half-life of what counts as the batch sizes that an engine runs at


class Kind(NamedTuple):
    """What makes engines alike."""

    name: str
    depths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    max_running: int

    @classmethod
    def of(cls, report: EngineReport) -> Kind:
        """Engines NAME-0, NAME-1, ... are of the group NAME."""
        name = report.engine.rpartition("-")[0]
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


class Cohort:
    """StepTimeFit and present choices of one kind of engines."""

    def __init__(self, kind: Kind, prior: StepTimes | None) -> None:
        self.kind = kind
        self.depths = kind.depths
        self.floors = kind.floors()
        ends = (*self.floors[1:], self.floors[-1] + 1)
        padded = bool(kind.batch_sizes)
        self.batches = tuple(float(b) if padded else (b + end - 1) / 2 for b, end in zip(self.floors, ends, strict=True))
        self.cost = StepTimeModel(self.depths, self.batches, self.floors, prior)
        self.row: dict[str, int] = {}
        self.chosen: Indices = np.zeros((0, len(self.floors)), dtype=np.int64)
        self._changed_at: Floats = np.zeros((0, len(self.floors)))
        self._visits: Floats = np.zeros((0, len(self.floors)))
        self.last_visits: Floats = np.zeros((0, len(self.floors)))  # shares of its last steps, by (engine, place)
        self.ran_at: Floats = np.zeros(0)  # when each engine last reported steps
        self._turn = 0
        self._tables: dict[bytes, DepthTable] = {}
        self._not_run_until: Floats = np.full((len(self.depths), len(self.floors)), -np.inf)

    def observe(self, now: float, new: Steps) -> None:
        """Take in at which places engines ran how many steps, and how long these took."""
        self.cost.observe(now, new)
        if not new.owner:
            return
        rows = self._rows(new.engines)
        ran = np.zeros((len(rows), len(self.floors)))
        places = np.maximum(0, np.searchsorted(self.floors, new.batch, side="right") - 1)
        ran += np.bincount(np.array(new.owner) * ran.shape[1] + places, new.steps, ran.size).reshape(ran.shape)
        moved = ran.any(axis=1)
        rows, ran = rows[moved], ran[moved]
        self.last_visits[rows] = ran / ran.sum(axis=1, keepdims=True)
        self._visits[rows] *= 0.5 ** ((now - self.ran_at[rows]) / VISITS_S)[:, None]
        self._visits[rows] += self.last_visits[rows]
        self.ran_at[rows] = now
        self._check(now, new)

    def _check(self, now: float, new: Steps) -> None:
        """Learn which depths are not run where a steady table tells to run them. Engines take turns at showing it."""
        self._turn = (self._turn + CHECKED) % len(new.engines)
        start = bisect_left(new.owner, self._turn)
        end = bisect_left(new.owner, self._turn + CHECKED)
        ran = set(zip(new.owner[start:end], new.depth[start:end], new.batch[start:end], strict=True))
        for i in range(start, end):
            owner, batch, table = new.owner[i], new.batch[i], new.tables[new.owner[i]]
            if table is None or new.steps[i] < NOT_RUN_STEPS:
                continue
            told = table.depth(batch)
            if told in self.depths and (owner, told, batch) not in ran:
                place = max(0, bisect_right(self.floors, batch) - 1)
                self._not_run_until[self.depths.index(told), place] = now + NOT_RUN_S

    def runnable(self, now: float) -> Mask:
        """Which depths can be run, by (depth, batch); all of them where none can."""
        can: Mask = self._not_run_until <= now
        result: Mask = can | ~can.any(axis=0)
        return result

    def update(
        self, now: float, engines: list[str], log_goodput: Floats, gain: float, dwell_s: float, switch_steps: float
    ) -> Indices:
        """Choose anew for these engines, from log goodputs by (engine, depth, batch); return their rows."""
        rows = self._rows(engines)
        before, visits = self.chosen[rows], self._visits[rows]
        shares = visits / np.maximum(visits.sum(axis=1, keepdims=True), 1e-9)
        free = now - self._changed_at[rows] >= dwell_s
        after = choose(log_goodput, before, free, shares, gain, switch_steps)
        self.chosen[rows] = after
        self._changed_at[rows] = np.where((after != before) & (before >= 0), now, self._changed_at[rows])
        return rows

    def table(self, chosen: Indices) -> DepthTable:
        """The table of an engine's choices by place."""
        key = chosen.tobytes()
        if key not in self._tables:
            if len(self._tables) >= TABLES:
                self._tables.clear()
            depths = {1: self.depths[chosen[0]]}
            last = depths[1]
            for floor, k in zip(self.floors, chosen.tolist(), strict=True):
                if self.depths[k] != last:
                    depths[floor] = last = self.depths[k]
            self._tables[key] = DepthTable(depth_by_batch=depths)
        return self._tables[key]

    def _rows(self, engines: Sequence[str]) -> Indices:
        for engine in engines:
            self.row.setdefault(engine, len(self.row))
        extra = (len(self.row) - len(self.chosen), len(self.floors))
        if extra[0]:
            self.chosen = np.vstack([self.chosen, np.full(extra, -1)])
            self._changed_at = np.vstack([self._changed_at, np.full(extra, -np.inf)])
            self._visits = np.vstack([self._visits, np.zeros(extra)])
            self.last_visits = np.vstack([self.last_visits, np.zeros(extra)])
            self.ran_at = np.append(self.ran_at, np.full(extra[0], -np.inf))
        return np.array([self.row[engine] for engine in engines], dtype=np.int64)

    def forget(self, engine: str) -> None:
        """Drop an engine that is no more."""
        row = self.row.pop(engine, None)
        if row is not None:
            self.chosen = np.delete(self.chosen, row, axis=0)
            self._changed_at = np.delete(self._changed_at, row, axis=0)
            self._visits = np.delete(self._visits, row, axis=0)
            self.last_visits = np.delete(self.last_visits, row, axis=0)
            self.ran_at = np.delete(self.ran_at, row)
            self.row = {name: r - (r > row) for name, r in self.row.items()}
