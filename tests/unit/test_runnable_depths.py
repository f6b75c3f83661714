"""Depths that engines were told to run and did not."""

from __future__ import annotations

from cluster.messages.directive import DepthTable
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.report_delta import StepDelta
from cluster.policy.runnable_depths import RULED_OUT_S, RunnableDepths

DEPTHS = (0, 1, 3)


def ran(told: int | None, depth: int, batch: int, steps: int = 10) -> StepDelta:
    """Steps of one engine whose table, if it is certain, tells it to run one depth at every batch size."""
    new = StepDelta()
    table = None if told is None else DepthTable(depth_by_batch={1: told})
    new.add("engine-0", table, [depth], [batch], [steps], [steps], [1.0])
    return new


def runnable(*news: StepDelta, at: float = 1.0) -> list[list[bool]]:
    depths = RunnableDepths(DEPTHS, BatchBuckets.of((1, 8), max_running=8))
    for new in news:
        depths.observe(0.0, new)
    mask: list[list[bool]] = depths.mask(at).tolist()
    return mask


ALL = [[True, True]] * len(DEPTHS)


def test_a_depth_that_is_not_run_is_ruled_out_at_that_batch_size() -> None:
    assert runnable(ran(told=3, depth=1, batch=8)) == [[True, True], [True, True], [True, False]]


def test_it_is_tried_again_later() -> None:
    assert runnable(ran(told=3, depth=1, batch=8), at=RULED_OUT_S) == ALL


def test_what_is_run_as_told_or_for_too_short_or_under_an_uncertain_table_shows_nothing() -> None:
    assert runnable(ran(3, 3, 8), ran(3, 1, 8, steps=1), ran(None, 1, 8), StepDelta()) == ALL


def test_where_all_are_ruled_out_all_count_as_runnable() -> None:
    assert runnable(ran(told=0, depth=2, batch=1), ran(told=1, depth=2, batch=1), ran(told=3, depth=2, batch=1)) == ALL
