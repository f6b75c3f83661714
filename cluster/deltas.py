"""What is new in reports: differences between engines' counters and those of their reports before.

Kept in flat lists of numbers, so that a thousand engines can be looked at together and few objects come to be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter, ne

from cluster.protocol import DepthTable, EngineReport

_STEPS = attrgetter("steps")


@dataclass
class Drafts:
    """New counts of draft positions."""

    engines: list[str] = field(default_factory=list)
    # One entry for each engine and position:
    owner: list[int] = field(default_factory=list)  # index into `engines`
    position: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, engine: str, reached: list[int], accepted: list[int]) -> None:
        """Add one engine's new counts by position."""
        self.owner += [len(self.engines)] * len(reached)
        self.engines.append(engine)
        self.position += range(len(reached))
        self.reached += reached
        self.accepted += accepted


@dataclass
class Steps:
    """New decode steps of engines that are alike."""

    engines: list[str] = field(default_factory=list)
    tables: list[DepthTable | None] = field(default_factory=list)  # of each: the one that all its steps followed, if certain
    # One entry for each engine, depth and batch size that ran:
    owner: list[int] = field(default_factory=list)  # index into `engines`
    depth: list[int] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    timed: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def begin(self, engine: str, table: DepthTable | None) -> None:
        """Begin one engine's entries."""
        self.engines.append(engine)
        self.tables.append(table)

    def add(self, depth: int, batch: int, steps: int, timed: int, seconds: float) -> None:
        """Add an entry of the engine begun last."""
        self.owner.append(len(self.engines) - 1)
        self.depth.append(depth)
        self.batch.append(batch)
        self.steps.append(steps)
        self.timed.append(timed)
        self.seconds.append(seconds)


@dataclass
class _Total:
    steps: int = 0
    timed: int = 0
    seconds: float = 0.0


@dataclass
class Counters:
    """Totals of one engine as last reported. Totals that shrink belong to an engine that started anew."""

    # Not the report itself: freeing a thousand of them is better left to whoever replaces them.
    _incarnation: int = -1
    _requests: int = 0
    _table: DepthTable | None = None
    _reached: list[int] = field(default_factory=list)
    _accepted: list[int] = field(default_factory=list)
    _order: list[int] = field(default_factory=list)  # steps of each entry, in the report's order
    _totals: dict[tuple[int, int], _Total] = field(default_factory=dict)

    def take(self, engine: str, report: EngineReport, drafts: Drafts, steps: Steps | None) -> None:
        """Add what a report has over the one before. The first adds all that its engine ever counted.

        Without `steps` its steps are left for later: counters are totals.
        """
        if report.incarnation != self._incarnation or report.requests < self._requests:
            self._reached, self._accepted, self._order, self._totals, self._table = [], [], [], {}, None
        self._incarnation, self._requests = report.incarnation, report.requests
        if steps is not None:
            # Only a table that was in force at both ends is sure to have been in force in between.
            table, before = report.applied.table, self._table
            steady = before is not None and table.enabled and before.depth_by_batch == table.depth_by_batch
            self._table = table
            self._take_steps(engine, report, table if steady else None, steps)
        reached, accepted = [c.reached for c in report.acceptance], [c.accepted for c in report.acceptance]
        if reached != self._reached:
            old_reached, old_accepted = self._reached or [0] * len(reached), self._accepted or [0] * len(reached)
            self._reached, self._accepted = reached, accepted
            new = [max(0, now - then) for now, then in zip(reached, old_reached, strict=False)]
            drafts.add(engine, new, [max(0, now - then) for now, then in zip(accepted, old_accepted, strict=False)])

    def _take_steps(self, engine: str, report: EngineReport, table: DepthTable | None, steps: Steps) -> None:
        order, last = list(map(_STEPS, report.steps)), self._order
        if order == last:
            return
        self._order = order
        steps.begin(engine, table)
        # Most entries stay as they were. Where the report lists the same ones as before, only the others need a look.
        changed = compress(report.steps, map(ne, order, last)) if len(order) == len(last) else report.steps
        for entry in changed:
            key = (entry.depth, entry.batch)
            total = self._totals.get(key)
            if total is None:
                total = self._totals[key] = _Total()
            if entry.steps > total.steps:
                timed, seconds = entry.timed - total.timed, entry.seconds - total.seconds
                steps.add(*key, entry.steps - total.steps, max(0, timed), max(0.0, seconds))
                total.steps, total.timed, total.seconds = entry.steps, entry.timed, entry.seconds
