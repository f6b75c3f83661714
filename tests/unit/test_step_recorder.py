from pathlib import Path

import pytest

from cluster.messages.report import Acceptance
from tests.unit.builders import steps
from workers.report import counted
from workers.sglang_patch.step_recorder import DraftCounts, StepRecorder
from workers.shared_counters import SharedCounters, SharedCountersReader


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(tmp_path: Path, clock: Clock) -> StepRecorder:
    counters = SharedCounters.create(tmp_path / "rank0", candidates=[0, 1, 3], sizes=[1, 2, 4])
    return StepRecorder(counters, lambda batch: {3: 4}.get(batch, batch), DraftCounts(), clock)


def read(tmp_path: Path) -> dict[str, object]:
    counters = SharedCountersReader(tmp_path / "rank0").try_read()
    assert counters is not None
    return counted([counters])


def test_acceptance_is_conditional_on_the_positions_before(recorder: StepRecorder, tmp_path: Path) -> None:
    recorder.step_launched(depth=3, batch=3)
    recorder.step_verified([3, 1, 0])
    report = read(tmp_path)
    assert report["acceptance"] == Acceptance(reached=(3, 2, 1), accepted=(2, 1, 1))
    assert (report["tokens"], report["requests"]) == (7, 3)


def test_positions_beyond_the_depth_are_not_reached(recorder: StepRecorder, tmp_path: Path) -> None:
    recorder.step_launched(depth=1, batch=1)
    recorder.step_verified([1])
    assert read(tmp_path)["acceptance"] == Acceptance(reached=(1, 0, 0), accepted=(1, 0, 0))


def test_only_a_step_right_after_a_decode_step_is_timed(recorder: StepRecorder, clock: Clock, tmp_path: Path) -> None:
    for prefill, at in [(True, 1.0), (False, 1.5), (True, 9.0), (False, 9.25)]:
        if prefill:
            recorder.prefill_launched()
        recorder.step_launched(depth=0, batch=3)
        clock.now = at
        recorder.step_verified([0, 0, 0])
    assert read(tmp_path)["steps"] == steps((0, 4, 4, 2, 0.75))


def test_with_overlap_a_step_is_charged_to_the_depth_it_ran_at(recorder: StepRecorder, clock: Clock, tmp_path: Path) -> None:
    recorder.step_launched(depth=3, batch=1)
    recorder.step_launched(depth=1, batch=1)
    clock.now = 1.0
    recorder.step_verified([3])
    recorder.step_launched(depth=1, batch=1)
    clock.now = 1.25
    recorder.step_verified([1])
    assert read(tmp_path)["steps"] == steps((1, 1, 1, 1, 0.25), (3, 1, 1, 0, 0.0))


def test_switches_and_the_step_of_the_last_table_are_counted(recorder: StepRecorder, tmp_path: Path) -> None:
    for depth in (3, 3, 0):
        recorder.step_launched(depth, batch=1)
        recorder.step_verified([0])
    recorder.table_in_force(revision=5)
    recorder.step_launched(depth=1, batch=1)
    report = read(tmp_path)
    (rank,) = report["ranks"]  # type: ignore[misc]
    assert (rank.revision, rank.at_step, rank.depth, rank.switches) == (5, 3, 1, 2)


def test_batches_beyond_the_largest_size_count_as_the_largest(recorder: StepRecorder, tmp_path: Path) -> None:
    recorder.step_launched(depth=0, batch=100)
    recorder.step_verified([0] * 100)
    assert read(tmp_path)["steps"] == steps((0, 4, 1, 0, 0.0))
