"""When an engine may explore again."""

from __future__ import annotations

import pytest

from cluster.policy.exploration.schedule import REPEATED_S, RecheckSchedule, TrialSchedule


def waits(schedule: RecheckSchedule, since: float) -> float:
    """Seconds until the engine is due."""
    return next(s for s in range(1000) if schedule.due(since + s, "a", shortest_s=2.0))


def test_rechecks_get_rare_while_they_disappoint_and_start_over_when_one_pays() -> None:
    schedule, waited = RecheckSchedule(), []
    assert not schedule.due(0.0, "a", shortest_s=2.0)
    assert schedule.due(2.0, "a", shortest_s=2.0)
    for _ in range(4):
        schedule.disappointed(100.0, "a", shortest_s=2.0, longest_s=10.0)
        waited.append(waits(schedule, since=100.0))
    assert waited == [4, 8, 10, 10]
    schedule.paid(200.0, "a", shortest_s=2.0)
    assert waits(schedule, since=200.0) == 2


def test_an_undecided_recheck_is_followed_up_soon_and_changes_no_interval() -> None:
    schedule = RecheckSchedule()
    schedule.disappointed(0.0, "a", shortest_s=2.0, longest_s=100.0)
    schedule.undecided(10.0, "a", shortest_s=2.0)
    assert waits(schedule, since=10.0) == 2
    schedule.disappointed(20.0, "a", shortest_s=2.0, longest_s=100.0)
    assert waits(schedule, since=20.0) == 8


def test_a_forgotten_engine_starts_anew() -> None:
    schedule = RecheckSchedule()
    schedule.disappointed(0.0, "a", shortest_s=2.0, longest_s=100.0)
    schedule.forget("a")
    assert waits(schedule, since=0.0) == 2


@pytest.mark.parametrize(("made", "again_after"), [(1, REPEATED_S), (2, 4 * REPEATED_S), (3, 16 * REPEATED_S)])
def test_the_same_trial_is_repeated_at_ever_longer_intervals(made: int, again_after: float) -> None:
    schedule = TrialSchedule()
    for _ in range(made):
        schedule.made(0.0, {5: 2})
    assert not schedule.may_try(again_after - 1, bucket=5, depth=2)
    assert schedule.may_try(again_after, bucket=5, depth=2)
    assert schedule.may_try(0.0, bucket=5, depth=1)
