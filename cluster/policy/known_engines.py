"""The engines that report, the cohort of each, and what is new in their reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.messages.hello import ServingFacts
from cluster.messages.profile import StepTimes
from cluster.policy.cohort import Cohort, CohortKey
from cluster.policy.plan import ReportingEngine
from cluster.policy.report_delta import DraftDelta, ReportedTotals, StepDelta

FORGOTTEN_S = 60.0
"""An engine that has not reported for this long is forgotten, in seconds."""


@dataclass
class CohortCounts:
    """The engines of one cohort that reported, and their new steps."""

    engines: list[str] = field(default_factory=list)
    steps: StepDelta = field(default_factory=StepDelta)


@dataclass
class NewCounts:
    """What one tick's reports add to those before."""

    drafts: DraftDelta = field(default_factory=DraftDelta)
    cohorts: defaultdict[Cohort, CohortCounts] = field(default_factory=lambda: defaultdict(CohortCounts))


@dataclass
class _Engine:
    cohort: Cohort
    totals: ReportedTotals
    seen_at: float


class KnownEngines:
    """Keeps the totals that each engine reported last, and sorts engines into cohorts."""

    def __init__(self, prior: StepTimes | None) -> None:
        """`prior` holds step times to start from, for engines that report none of their own."""
        self._prior = prior
        self._engines: dict[str, _Engine] = {}
        self._cohorts: dict[CohortKey, Cohort] = {}

    def read(self, now: float, reporting: Mapping[str, ReportingEngine]) -> NewCounts:
        """Compare the reports with those before. An engine's first report is new as a whole; `now` is in seconds."""
        new = NewCounts()
        for name, (facts, report) in reporting.items():
            engine = self._find(name, CohortKey.of(report.engine, facts), facts)
            engine.seen_at = now
            cohort = new.cohorts[engine.cohort]
            cohort.engines.append(name)
            engine.totals.observe(name, report, new.drafts, cohort.steps)
        return new

    def forget_absent(self, now: float) -> list[str]:
        """Drop engines that have not reported for long, and return their names."""
        absent = [name for name, engine in self._engines.items() if now - engine.seen_at > FORGOTTEN_S]
        for name in absent:
            self._engines.pop(name).cohort.forget(name)
        return absent

    def _find(self, name: str, key: CohortKey, facts: ServingFacts) -> _Engine:
        """The engine of that name. One that came back with other sizes changes its cohort."""
        engine = self._engines.get(name)
        if engine is not None and engine.cohort.key == key:
            return engine
        if key not in self._cohorts:
            self._cohorts[key] = Cohort(key, StepTimes(step_ms=facts.step_ms) if facts.step_ms else self._prior)
        cohort = self._cohorts[key]
        if engine is None:
            engine = self._engines[name] = _Engine(cohort, ReportedTotals(), 0.0)
        else:
            engine.cohort.forget(name)
            engine.cohort = cohort
        return engine
