"""What reported step times teach about all the others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.messages.profile import Profile
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.isotonic import monotone
from cluster.policy.report_delta import StepDelta
from cluster.policy.step_time import StepTimeModel

H200 = Profile.load("h200_llama8b_eagle3")
DEPTHS = (0, 1, 3, 5)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def model(prior: Profile | None = H200) -> StepTimeModel:
    return StepTimeModel(DEPTHS, BatchBuckets.of(BATCHES, max_running=256), prior)


def observe(times: StepTimeModel, now: float, *timed: tuple[int, int, float], steps: int = 30, engines: int = 1) -> None:
    """One tick in which engines timed steps of (depth, batch), in milliseconds."""
    new = StepDelta()
    for engine in range(engines):
        for depth, batch, ms in timed:
            new.add(f"engine-{engine}", None, [depth], [batch], [steps], [steps], [steps * ms / 1e3])
    times.observe(now, new)


def ms(times: StepTimeModel, depth: int, batch: int, now: float = 100.0) -> float:
    return float(1e3 * np.exp(times.fit(now).log_s[DEPTHS.index(depth), BATCHES.index(batch)]))


def test_it_starts_from_the_profile() -> None:
    times = model()
    assert ms(times, 3, 64) == pytest.approx(10.0926)
    assert ms(times, 0, 1) == pytest.approx(4.7887)


@pytest.mark.parametrize("prior", [H200, None], ids=["profile", "none"])
def test_reports_correct_it(prior: Profile | None) -> None:
    times = model(prior)
    for tick in range(10):
        observe(times, tick * 0.2, (0, 8, 40.0), (3, 8, 100.0))
    assert ms(times, 0, 8) == pytest.approx(40.0, rel=0.05)
    assert ms(times, 3, 8) == pytest.approx(100.0, rel=0.05)


def test_a_slower_machine_is_slower_at_every_depth() -> None:
    times = model()
    for tick in range(10):
        observe(times, tick * 0.2, *((1, batch, 1.3 * H200.ms(1, batch)) for batch in (8, 32)))
    assert ms(times, 3, 32) > 1.1 * H200.ms(3, 32)
    assert ms(times, 0, 1) > 1.05 * H200.ms(0, 1)


def test_without_a_profile_neighbours_are_guessed() -> None:
    times = model(None)
    for batch in (1, 8, 64):
        for depth in (0, 3):
            observe(times, 1.0, (depth, batch, H200.ms(depth, batch)))
    assert ms(times, 3, 16) == pytest.approx(H200.ms(3, 16), rel=0.15)
    assert ms(times, 1, 8) == pytest.approx(H200.ms(1, 8), rel=0.15)


@pytest.mark.parametrize("factor", [50.0, 0.02])
def test_an_outlier_moves_nothing(factor: float) -> None:
    times = model()
    for tick in range(12):
        observe(times, tick * 0.2, (1, 32, H200.ms(1, 32) * (factor if tick in (4, 9) else 1.0)))
    assert ms(times, 1, 32) == pytest.approx(H200.ms(1, 32), rel=0.01)


def test_one_engine_that_lies_moves_nothing() -> None:
    times, new = model(), StepDelta()
    for engine in range(5):
        seconds = 30 * H200.ms(1, 32) / 1e3 * (100.0 if engine == 0 else 1.0)
        new.add(f"engine-{engine}", None, [1], [32], [30], [30], [seconds])
    times.observe(0.0, new)
    assert ms(times, 1, 32) == pytest.approx(H200.ms(1, 32), rel=0.01)


def test_a_lasting_change_is_followed() -> None:
    times = model()
    for tick in range(60):
        observe(times, tick * 0.2, (1, 32, H200.ms(1, 32) * (1.0 if tick < 30 else 1.5)))
    assert ms(times, 1, 32) == pytest.approx(1.5 * H200.ms(1, 32), rel=0.03)


def test_steps_that_nobody_timed_teach_nothing() -> None:
    times, new = model(), StepDelta()
    new.add("engine-0", None, [1], [32], [10], [0], [0.0])
    times.observe(0.0, new)
    assert ms(times, 1, 32) == pytest.approx(H200.ms(1, 32))


def test_a_measured_ratio_is_less_in_doubt() -> None:
    times = model(None)
    bucket = BATCHES.index(8)
    before = times.fit(0.0).ratio_deviation(0, 2, bucket)
    observe(times, 1.0, (0, 8, 5.0), (3, 8, 6.5))
    assert times.fit(2.0).ratio_deviation(0, 2, bucket) < 0.3 * before
    assert times.fit(2.0).ratio_deviation(0, 3, bucket) > times.fit(2.0).ratio_deviation(0, 2, bucket)


timings = st.tuples(st.sampled_from(DEPTHS), st.integers(1, 300), st.floats(0.01, 1000.0))


@given(st.lists(st.lists(timings, min_size=1, max_size=4), max_size=5), st.booleans())
@settings(max_examples=60)
def test_deeper_and_fuller_is_never_cheaper_whatever_is_reported(
    ticks: list[list[tuple[int, int, float]]], with_profile: bool
) -> None:
    times = model(H200 if with_profile else None)
    for tick, timed in enumerate(ticks):
        observe(times, float(tick), *timed)
    log_s = times.fit(10.0).log_s
    assert np.isfinite(log_s).all()
    assert (np.diff(log_s, axis=0) >= -1e-9).all()
    assert (np.diff(log_s, axis=1) >= -1e-9).all()


@given(st.lists(st.lists(st.floats(-10, 10), min_size=4, max_size=4), min_size=1, max_size=5))
@settings(max_examples=60)
def test_what_is_monotone_stays(rows: list[list[float]]) -> None:
    rising = np.maximum.accumulate(np.maximum.accumulate(np.array(rows), axis=0), axis=1)
    assert (monotone(rising, np.ones_like(rising)) == rising).all()
