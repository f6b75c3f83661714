"""What reported step times teach about costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.messages.profile import Profile
from cluster.policy.report_delta import Steps
from cluster.policy.step_time import StepTimeModel, monotone

H200 = Profile.load("h200_llama8b_eagle3")
DEPTHS = (0, 1, 3, 5)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def model(prior: Profile | None = H200) -> StepTimeModel:
    return StepTimeModel(DEPTHS, BATCHES, BATCHES, prior)


def observe(costs: StepTimeModel, now: float, *timed: tuple[int, int, float], steps: int = 30, engines: int = 1) -> None:
    """One tick in which engines timed steps of (depth, batch) at so many milliseconds."""
    new = Steps()
    for engine in range(engines):
        for depth, batch, ms in timed:
            new.add(f"engine-{engine}", None, [depth], [batch], [steps], [steps], [steps * ms / 1e3])
    costs.observe(now, new)


def ms(costs: StepTimeModel, depth: int, batch: int, now: float = 100.0) -> float:
    return float(1e3 * np.exp(costs.costs(now).log_s[DEPTHS.index(depth), BATCHES.index(batch)]))


def test_it_starts_from_the_profile() -> None:
    costs = model()
    assert ms(costs, 3, 64) == pytest.approx(10.0926)
    assert ms(costs, 0, 1) == pytest.approx(4.7887)


@pytest.mark.parametrize("prior", [H200, None], ids=["profile", "none"])
def test_reports_correct_it(prior: Profile | None) -> None:
    costs = model(prior)
    for tick in range(10):
        observe(costs, tick * 0.2, (0, 8, 40.0), (3, 8, 100.0))
    assert ms(costs, 0, 8) == pytest.approx(40.0, rel=0.05)
    assert ms(costs, 3, 8) == pytest.approx(100.0, rel=0.05)


def test_a_slower_machine_is_slower_at_every_depth() -> None:
    costs = model()
    for tick in range(10):
        observe(costs, tick * 0.2, *((1, batch, 1.3 * H200.ms(1, batch)) for batch in (8, 32)))
    assert ms(costs, 3, 32) > 1.1 * H200.ms(3, 32)
    assert ms(costs, 0, 1) > 1.05 * H200.ms(0, 1)


def test_without_a_profile_neighbours_are_guessed() -> None:
    costs = model(None)
    for batch in (1, 8, 64):
        for depth in (0, 3):
            observe(costs, 1.0, (depth, batch, H200.ms(depth, batch)))
    assert ms(costs, 3, 16) == pytest.approx(H200.ms(3, 16), rel=0.15)
    assert ms(costs, 1, 8) == pytest.approx(H200.ms(1, 8), rel=0.15)


@pytest.mark.parametrize("factor", [50.0, 0.02])
def test_an_outlier_moves_nothing(factor: float) -> None:
    costs = model()
    for tick in range(12):
        observe(costs, tick * 0.2, (1, 32, H200.ms(1, 32) * (factor if tick in (4, 9) else 1.0)))
    assert ms(costs, 1, 32) == pytest.approx(H200.ms(1, 32), rel=0.01)


def test_one_engine_that_lies_moves_nothing() -> None:
    costs, new = model(), Steps()
    for engine in range(5):
        seconds = 30 * H200.ms(1, 32) / 1e3 * (100.0 if engine == 0 else 1.0)
        new.add(f"engine-{engine}", None, [1], [32], [30], [30], [seconds])
    costs.observe(0.0, new)
    assert ms(costs, 1, 32) == pytest.approx(H200.ms(1, 32), rel=0.01)


def test_a_lasting_change_is_followed() -> None:
    costs = model()
    for tick in range(60):
        observe(costs, tick * 0.2, (1, 32, H200.ms(1, 32) * (1.0 if tick < 30 else 1.5)))
    assert ms(costs, 1, 32) == pytest.approx(1.5 * H200.ms(1, 32), rel=0.03)


def test_steps_that_nobody_timed_teach_nothing() -> None:
    costs, new = model(), Steps()
    new.add("engine-0", None, [1], [32], [10], [0], [0.0])
    costs.observe(0.0, new)
    assert ms(costs, 1, 32) == pytest.approx(H200.ms(1, 32))


def test_a_measured_ratio_is_less_in_doubt() -> None:
    costs = model(None)
    place = BATCHES.index(8)
    before = costs.costs(0.0).doubt(0, 2, place)
    observe(costs, 1.0, (0, 8, 5.0), (3, 8, 6.5))
    assert costs.costs(2.0).doubt(0, 2, place) < 0.3 * before
    assert costs.costs(2.0).doubt(0, 3, place) > costs.costs(2.0).doubt(0, 2, place)


timings = st.tuples(st.sampled_from(DEPTHS), st.integers(1, 300), st.floats(0.01, 1000.0))


@given(st.lists(st.lists(timings, min_size=1, max_size=4), max_size=5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_deeper_and_fuller_is_never_cheaper_whatever_is_reported(
    ticks: list[list[tuple[int, int, float]]], with_profile: bool
) -> None:
    costs = model(H200 if with_profile else None)
    for tick, timed in enumerate(ticks):
        observe(costs, float(tick), *timed)
    log_s = costs.costs(10.0).log_s
    assert np.isfinite(log_s).all()
    assert (np.diff(log_s, axis=0) >= -1e-9).all()
    assert (np.diff(log_s, axis=1) >= -1e-9).all()


@given(st.lists(st.lists(st.floats(-10, 10), min_size=4, max_size=4), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_what_is_monotone_stays(rows: list[list[float]]) -> None:
    rising = np.maximum.accumulate(np.maximum.accumulate(np.array(rows), axis=0), axis=1)
    assert (monotone(rising, np.ones_like(rising)) == rising).all()
