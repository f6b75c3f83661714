"""What is new in reports: counts since the report before.

New counts are kept in flat lists of numbers, so that numpy can work on a thousand engines at once and few objects are created.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import gt, sub

from cluster.messages.directive import DepthTable
from cluster.messages.report import EngineReport, StepCounts


@dataclass
class DraftDelta:
    """New drafts, by engine and draft position."""

    engines: list[str] = field(default_factory=list)
    # One entry for each engine and position:
    owner: list[int] = field(default_factory=list)  # index into `engines`
    position: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, engine: str, reached: Sequence[int], accepted: Sequence[int]) -> None:
        """Add one engine's new counts by position."""
        self.owner += [len(self.engines)] * len(reached)
        self.engines.append(engine)
        self.position += range(len(reached))
        self.reached += reached
        self.accepted += accepted


@dataclass
class StepDelta:
    """New decode steps of one cohort, by engine, depth and batch size."""

    engines: list[str] = field(default_factory=list)
    # Of each engine, the table that was in force at all its new steps; None: not sure
    tables: list[DepthTable | None] = field(default_factory=list)
    # One entry for each engine, depth and batch size that ran:
    owner: list[int] = field(default_factory=list)  # index into `engines`
    depth: list[int] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    timed: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(
        self,
        engine: str,
        table: DepthTable | None,
        depth: Sequence[int],
        batch: Sequence[int],
        steps: Sequence[int],
        timed: Sequence[int],
        seconds: Sequence[float],
    ) -> None:
        """Add one engine's new steps by depth and batch size."""
        self.owner += [len(self.engines)] * len(depth)
        self.engines.append(engine)
        self.tables.append(table)
        self.depth += depth
        self.batch += batch
        self.steps += steps
        self.timed += timed
        self.seconds += seconds


@dataclass
class ReportedTotals:
    """Totals of one engine as last reported. Totals that shrink mean that the engine restarted."""

    # The report itself is not kept. Otherwise a thousand reports a tick would be freed here, within the time of a decision.
    _incarnation: int = -1
    _requests: int = 0
    _table: DepthTable | None = None
    _reached: Sequence[int] = ()
    _accepted: Sequence[int] = ()
    _pairs: tuple[Sequence[int], Sequence[int]] = ((), ())  # depths and batch sizes of the columns below
    _count: list[int] = field(default_factory=list)
    _timed: list[int] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)

    def observe(self, engine: str, report: EngineReport, drafts: DraftDelta, steps: StepDelta) -> None:
        """Add to `drafts` and `steps` what the report adds to the one before. An engine's first report is new as a whole."""
        if report.incarnation != self._incarnation or report.requests < self._requests:
            self._table, self._reached, self._accepted, self._pairs = None, (), (), ((), ())
        self._incarnation, self._requests = report.incarnation, report.requests
        self._observe_steps(engine, report, steps)
        reached, accepted = report.acceptance.reached, report.acceptance.accepted
        if reached != self._reached:
            none = [0] * len(reached)
            before = self._reached or none, self._accepted or none
            drafts.add(engine, list(map(sub, reached, before[0])), list(map(sub, accepted, before[1])))
            self._reached, self._accepted = reached, accepted

    def _observe_steps(self, engine: str, report: EngineReport, steps: StepDelta) -> None:
        now, table, before = report.steps, report.applied.table, self._table
        self._table = table
        if (now.depth, now.batch) != self._pairs:
            self._align(now)
        count, timed, seconds = self._count, self._timed, self._seconds
        # Most rows stay as they were.
        rows = list(compress(range(len(count)), map(gt, now.count, count)))
        if not rows:
            return
        # Only a table that both reports name was surely in force in between.
        steady = before is not None and table.enabled and before.depth_by_batch == table.depth_by_batch
        steps.add(
            engine,
            table if steady else None,
            [now.depth[i] for i in rows],
            [now.batch[i] for i in rows],
            [now.count[i] - count[i] for i in rows],
            [now.timed[i] - timed[i] for i in rows],
            [now.seconds[i] - seconds[i] for i in rows],
        )
        for i in rows:
            count[i], timed[i], seconds[i] = now.count[i], now.timed[i], now.seconds[i]

    def _align(self, now: StepCounts) -> None:
        """Reorder the totals to match the rows of a report. New rows start at zero."""
        at = {pair: i for i, pair in enumerate(zip(*self._pairs, strict=True))}
        rows = [at.get(pair) for pair in zip(now.depth, now.batch, strict=True)]
        self._pairs = now.depth, now.batch
        self._count = [0 if i is None else self._count[i] for i in rows]
        self._timed = [0 if i is None else self._timed[i] for i in rows]
        self._seconds = [0.0 if i is None else self._seconds[i] for i in rows]
