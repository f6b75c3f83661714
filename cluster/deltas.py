"""What is new in a report: differences between an engine's counters and those of its report before."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.cost import Sample
from cluster.protocol import DepthTable, EngineReport


@dataclass(frozen=True)
class News:
    """What one engine did since its last report."""

    acceptance: tuple[tuple[int, int], ...]  # reached and accepted, by position
    timed: tuple[Sample, ...]
    steps: dict[tuple[int, int], int]  # by (depth, batch)
    table: DepthTable | None  # the table that all these steps followed, where it is certain


_NONE = (0, 0, 0.0)
NOTHING = News((), (), {}, None)


@dataclass
class Counters:
    """Totals of one engine as last reported. Totals that shrink belong to an engine that started anew."""

    last: EngineReport | None = None
    _acceptance: list[tuple[int, int]] = field(default_factory=list)
    _steps: dict[tuple[int, int], tuple[int, int, float]] = field(default_factory=dict)

    def take(self, report: EngineReport) -> News:
        """What `report` adds to the reports before. The first one adds all that its engine ever counted."""
        before = self.last
        if report is before:
            return NOTHING
        if before is None or report.incarnation != before.incarnation or report.requests < before.requests:
            self._acceptance, self._steps, before = [], {}, None
        self.last = report
        acceptance, timed, steps = [], [], {}
        for i, now in enumerate(report.acceptance):
            r, a = self._acceptance[i] if i < len(self._acceptance) else (0, 0)
            acceptance.append((max(0, now.reached - r), max(0, now.accepted - a)))
        self._acceptance = [(c.reached, c.accepted) for c in report.acceptance]
        known = self._steps
        for step in report.steps:
            key = (step.depth, step.batch)
            n, timed_n, seconds = known.get(key, _NONE)
            if step.steps > n:
                steps[key] = step.steps - n
                if step.timed > timed_n:
                    timed.append(Sample(step.depth, step.batch, step.timed - timed_n, step.seconds - seconds))
                known[key] = (step.steps, step.timed, step.seconds)
        # Only a table that was in force at both ends is sure to have been in force in between.
        steady = before is not None and before.applied.table.depth_by_batch == report.applied.table.depth_by_batch
        table = report.applied.table if steady and report.applied.table.enabled else None
        return News(tuple(acceptance), tuple(timed), steps, table)
