"""What counts teach about acceptance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.messages.base import DEEPEST
from cluster.policy.acceptance import AcceptanceModel
from cluster.policy.report_delta import DraftDelta

TICK_S = 0.2
HALF_LIFE_S = 60.0


class Fleet:
    """A model, and engines that report what is said about them, tick by tick."""

    def __init__(self) -> None:
        self.model = AcceptanceModel()
        self.now = 0.0

    def tick(self, ticks: int = 1, samples: int = 100, **acceptance: list[float]) -> None:
        """Let engines verify `samples` drafts a tick, with this acceptance by position; silent ones are left out."""
        for _ in range(ticks):
            self.now += TICK_S
            drafts = DraftDelta()
            for engine, by_position in acceptance.items():
                reached = np.cumprod([samples, *by_position]).round().astype(int).tolist()
                drafts.add(engine, reached[:-1], reached[1:])
            self.model.observe(self.now, drafts, HALF_LIFE_S)

    def mean(self, engine: str) -> list[float]:
        values: list[float] = self.model.estimate([engine]).mean[0].tolist()
        return values

    def deviation(self, engine: str) -> list[float]:
        values: list[float] = self.model.estimate([engine]).deviation[0].tolist()
        return values


def test_counts_are_learnt_by_position() -> None:
    fleet = Fleet()
    fleet.tick(20, a=[0.9, 0.6, 0.3])
    assert fleet.mean("a")[:3] == pytest.approx([0.9, 0.6, 0.3], abs=0.03)


@pytest.mark.parametrize("truth", [0.0, 0.05, 1.0])
def test_there_is_no_floor_and_no_ceiling(truth: float) -> None:
    fleet = Fleet()
    fleet.tick(50, a=[truth])
    assert fleet.mean("a")[0] == pytest.approx(truth, abs=0.02)


def test_positions_never_tried_are_like_the_last_one_but_less_certain() -> None:
    fleet = Fleet()
    fleet.tick(20, a=[0.8])
    mean, deviation = fleet.mean("a"), fleet.deviation("a")
    assert mean[1:4] == pytest.approx([mean[0]] * 3, abs=0.02)
    assert deviation[0] < 0.03
    assert deviation[0] < deviation[1] <= deviation[2] <= deviation[3]


@pytest.mark.parametrize("samples", [4, 36, 1600])
def test_a_change_is_seen_within_two_seconds(samples: int) -> None:
    fleet = Fleet()
    fleet.tick(100, samples, a=[0.75])
    fleet.tick(20 if samples == 4 else 10, samples, a=[0.25])
    assert fleet.mean("a")[0] < 0.4


def test_silence_keeps_the_mean_and_loses_certainty() -> None:
    fleet = Fleet()
    fleet.tick(50, a=[0.2])
    mean, deviation = fleet.mean("a")[0], fleet.deviation("a")[0]
    fleet.now += 3600
    fleet.tick()
    assert fleet.mean("a")[0] == pytest.approx(mean, abs=0.05)
    assert fleet.deviation("a")[0] > deviation


def test_a_new_engine_starts_from_the_fleet_and_goes_its_own_way() -> None:
    fleet = Fleet()
    fleet.tick(20, a=[0.9], b=[0.9])
    assert fleet.mean("new")[0] == pytest.approx(0.9, abs=0.02)
    estimates = []
    for _ in range(4):
        fleet.tick(2, samples=20, a=[0.9], b=[0.9], new=[0.3])
        estimates.append(fleet.mean("new")[0])
    assert estimates == sorted(estimates, reverse=True)
    assert estimates[-1] < 0.5
    assert fleet.mean("a")[0] > 0.85


def test_one_canary_speaks_for_a_silent_fleet() -> None:
    fleet = Fleet()
    fleet.tick(20, a=[0.2], b=[0.2], c=[0.2])
    fleet.tick(20)
    fleet.tick(1, a=[0.8])
    assert fleet.mean("b")[0] > 0.7
    assert fleet.mean("b")[3] > 0.6


def test_one_of_many_busy_engines_does_not() -> None:
    fleet = Fleet()
    fleet.tick(20, off=[0.2], **{f"e{i}": [0.8] for i in range(20)})
    before = fleet.mean("off")[0]
    fleet.tick(1, **{f"e{i}": [0.8 if i else 0.3] for i in range(20)})
    assert fleet.mean("off")[0] == pytest.approx(before, abs=0.03)


def test_an_engine_that_is_no_more_is_forgotten() -> None:
    fleet = Fleet()
    fleet.tick(20, a=[0.1], b=[0.9], c=[0.5])
    fleet.model.forget("a")
    fleet.model.forget("never seen")
    assert fleet.mean("b")[0] > 0.85
    assert fleet.mean("c")[0] == pytest.approx(0.5, abs=0.05)


counts = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2000)), min_size=1, max_size=DEEPEST)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), counts), max_size=6))
@settings(max_examples=100)
def test_estimates_are_chances_whatever_the_counts(ticks: list[dict[str, list[tuple[int, int]]]]) -> None:
    model = AcceptanceModel()
    for tick, engines in enumerate(ticks):
        drafts = DraftDelta()
        for engine, positions in engines.items():
            drafts.add(engine, [r for r, _ in positions], [a for _, a in positions])
        model.observe(tick * TICK_S, drafts, HALF_LIFE_S)
    mean, deviation, _ = model.estimate(["a", "b", "new"])
    assert ((mean >= 0) & (mean <= 1)).all()
    assert ((deviation > 0) & (deviation <= 0.5)).all()


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
@settings(max_examples=100)
def test_more_accepted_never_lowers_an_estimate(positions: list[tuple[int, float, float]]) -> None:
    """One report, the same drafts reached, more of them accepted."""

    def estimate(pick: int) -> list[float]:
        model, drafts = AcceptanceModel(), DraftDelta()
        accepted = [round(p[0] * sorted(p[1:])[pick]) for p in positions]
        drafts.add("a", [p[0] for p in positions], accepted)
        model.observe(0.0, drafts, HALF_LIFE_S)
        values: list[float] = model.estimate(["a"]).mean[0].tolist()
        return values

    assert all(low <= high + 1e-12 for low, high in zip(estimate(0), estimate(1), strict=True))
