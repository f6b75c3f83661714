"""What is new in a report, compared with the one before."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.messages.directive import Applied
from cluster.messages.report import Acceptance
from cluster.policy.report_delta import DraftDelta, ReportedTotals, StepDelta
from tests.unit.builders import report, steps, table


class Engine:
    """Reported totals, and what was new in the last report."""

    def __init__(self) -> None:
        self.totals = ReportedTotals()

    def report(self, **fields: Any) -> None:
        self.drafts, self.steps = DraftDelta(), StepDelta()
        self.totals.observe("a", report("a", **fields), self.drafts, self.steps)

    @property
    def ran(self) -> list[tuple[int, int, int, int, float]]:
        new = self.steps
        return list(zip(new.depth, new.batch, new.steps, new.timed, new.seconds, strict=True))


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_only_rows_that_grew_are_new(engine: Engine) -> None:
    engine.report(steps=steps((0, 1, 10, 9, 1.0), (3, 8, 5, 5, 2.0)))
    assert engine.ran == [(0, 1, 10, 9, 1.0), (3, 8, 5, 5, 2.0)]
    engine.report(steps=steps((0, 1, 10, 9, 1.0), (3, 8, 9, 8, 3.5)))
    assert engine.ran == [(3, 8, 4, 3, 1.5)]


def test_rows_may_come_in_between(engine: Engine) -> None:
    engine.report(steps=steps((0, 1, 10, 10, 1.0), (3, 8, 5, 5, 2.0)))
    engine.report(steps=steps((0, 1, 11, 11, 1.5), (1, 4, 7, 6, 3.0), (3, 8, 5, 5, 2.0)))
    assert engine.ran == [(0, 1, 1, 1, 0.5), (1, 4, 7, 6, 3.0)]


def test_drafts_are_counted_by_position(engine: Engine) -> None:
    engine.report(acceptance=Acceptance(reached=(10, 4), accepted=(4, 1)))
    engine.report(acceptance=Acceptance(reached=(30, 14), accepted=(14, 1)))
    assert (engine.drafts.position, engine.drafts.reached, engine.drafts.accepted) == ([0, 1], [20, 10], [10, 0])


def test_an_engine_that_did_nothing_says_nothing(engine: Engine) -> None:
    for _ in range(2):
        engine.report(steps=steps((0, 1, 10, 10, 1.0)), acceptance=Acceptance(reached=(9,), accepted=(3,)))
    assert (engine.steps.engines, engine.drafts.engines) == ([], [])


@pytest.mark.parametrize("restart", [{"incarnation": 2, "requests": 90}, {"requests": 5}])
def test_a_restarted_engine_counts_from_nothing(engine: Engine, restart: dict[str, int]) -> None:
    before = {"steps": steps((0, 1, 10, 10, 1.0)), "acceptance": Acceptance(reached=(9,), accepted=(3,))}
    engine.report(**{"requests": 50, **before})
    engine.report(steps=steps((0, 1, 3, 2, 0.25)), acceptance=Acceptance(reached=(2,), accepted=(1,)), **restart)
    assert engine.ran == [(0, 1, 3, 2, 0.25)]
    assert (engine.drafts.reached, engine.drafts.accepted) == ([2], [1])


def test_a_table_is_certain_only_if_it_was_in_force_at_both_ends(engine: Engine) -> None:
    applied = [Applied(source="controller", table=table(depths)) for depths in ({1: 3}, {1: 3}, {1: 0})]
    tables = []
    for n, of in enumerate(applied, start=1):
        engine.report(applied=of, steps=steps((3, 1, n, n, float(n))))
        tables += engine.steps.tables
    assert tables == [None, table({1: 3}), None]
