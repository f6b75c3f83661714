"""The measured policy through its interface."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster.messages.directive import DepthTable
from cluster.messages.profile import Profile, StepTimes, packaged
from cluster.messages.report import Acceptance
from cluster.messages.settings import PolicySettings
from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.policy.plan import Plan, ReportingEngine
from cluster.simulation.evaluation import evaluate
from cluster.simulation.scenario import Scenario
from cluster.simulation.simulator import simulate
from tests.unit.builders import facts, reporting, steps

H200 = Profile.load("h200_llama8b_eagle3")
candidates = st.sets(st.integers(0, 16), min_size=1, max_size=6).map(sorted)


@st.composite
def fleets(draw: st.DrawFn) -> list[dict[str, ReportingEngine]]:
    """A few ticks of reports of up to three engines with arbitrary counters that grow."""
    depths = draw(candidates)
    names = draw(st.lists(st.sampled_from(["a-0", "a-1", "b-0"]), min_size=1, max_size=3, unique=True))
    ticks = []
    counts = {name: [0] * 4 for name in names}
    for _ in range(draw(st.integers(1, 5))):
        reports = {}
        for name in names:
            grow = draw(st.tuples(*[st.integers(0, 500)] * 4))
            counts[name] = [c + g for c, g in zip(counts[name], grow, strict=True)]
            reached, accepted, count, ms = counts[name]
            positions = max(1, depths[-1])
            reports[name] = reporting(
                name,
                facts(candidate_depths=tuple(depths), batch_sizes=()),
                acceptance=Acceptance(reached=(reached,) * positions, accepted=(min(accepted, reached),) * positions),
                steps=steps((depths[-1], draw(st.sampled_from([1, 8, 64])), count, count, ms / 1e3)),
            )
        ticks.append(reports)
    return ticks


@given(fleets(), st.booleans())
@settings(max_examples=40)
def test_every_table_is_whole_and_holds_candidates_only(ticks: list[dict[str, ReportingEngine]], with_prior: bool) -> None:
    policy = MeasuredDepthPolicy(prior=H200 if with_prior else None)
    for tick, reports in enumerate(ticks):
        plans = policy.decide(reports, tick * 0.2)
        assert plans.keys() == reports.keys()
        for name, plan in plans.items():
            assert 1 in plan.table.depth_by_batch
            assert {plan.table.depth(batch) for batch in (1, 7, 64, 1000)} <= set(reports[name].facts.candidate_depths)
            assert plan.reason
            assert "\n" not in plan.reason


class PlanRecorder:
    """Passes on what a policy decides, keeps the last plan that does not explore, and counts those that do."""

    def __init__(self, settings: PolicySettings | None = None) -> None:
        self.policy = MeasuredDepthPolicy(settings, prior=H200)
        self.explored = 0
        self.last = Plan(DepthTable(enabled=False), "")

    def decide(self, reports: Mapping[str, ReportingEngine], now: float) -> dict[str, Plan]:
        plans = self.policy.decide(reports, now)
        self.explored += sum(plan.explores for plan in plans.values())
        self.last = next((plan for plan in plans.values() if not plan.explores), self.last)
        return plans


def decided(acceptance: float, batch: int) -> Plan:
    """The plan after a thousand steps at one acceptance and batch size."""
    phase = {"steps": 1000, "batch": batch, "acceptance": [acceptance]}
    recorder = PlanRecorder()
    for _ in simulate(Scenario.model_validate({"name": "s", "step_ms": H200.step_ms, "phases": [phase]}), recorder):
        pass
    return recorder.last


@pytest.mark.parametrize(("acceptance", "batch", "depth"), [(0.05, 1, 0), (0.9, 1, 7), (0.2, 128, 0), (0.8, 128, 3)])
def test_the_depth_of_most_tokens_a_second_is_found(acceptance: float, batch: int, depth: int) -> None:
    goodput = {k: (1 + sum(acceptance**i for i in range(1, k + 1))) / H200.ms(k, batch) for k in H200.depths}
    assert max(goodput, key=goodput.__getitem__) == depth
    assert decided(acceptance, batch).table.depth(batch) == depth


def test_a_reason_holds_the_figures() -> None:
    assert re.search(r"depth \d.*tok/s.*acceptance", decided(0.8, 8).reason)


def test_an_off_fleet_finds_a_better_draft() -> None:
    phases = [{"steps": 1500, "batch": 64, "acceptance": [0.1]}, {"steps": 6000, "batch": 64, "acceptance": [0.9]}]
    result = evaluate(Scenario.model_validate({"name": "s", "step_ms": H200.step_ms, "prior_step_ms": "same", "phases": phases}))
    assert result.phases[1] > 0.9
    assert result.probe_share < 0.01


def test_with_no_share_for_it_nothing_is_explored() -> None:
    explored = []
    for share in (0.0, 0.01):
        recorder = PlanRecorder(PolicySettings(probe_share=share))
        phase = {"steps": 1000, "batch": 8, "acceptance": [0.5]}
        for _ in simulate(Scenario.model_validate({"name": "s", "step_ms": H200.step_ms, "phases": [phase]}), recorder):
            pass
        explored.append(recorder.explored)
    assert explored[0] == 0 < explored[1]


def test_an_engine_that_comes_back_with_other_depths_gets_a_table_of_those() -> None:
    policy = MeasuredDepthPolicy(prior=H200)
    policy.decide({"a-0": reporting("a-0", facts(candidate_depths=(0, 1, 3)))}, 0.0)
    plans = policy.decide({"a-0": reporting("a-0", facts(incarnation=2, candidate_depths=(2, 5)), incarnation=2)}, 0.2)
    assert set(plans["a-0"].table.depth_by_batch.values()) <= {2, 5}


@pytest.mark.parametrize("wrong", [{"switch_gain": 2}, {"dwell_s": -1}, {"probe_share": 1}, {"half_life_s": 0}, {"nope": 1}])
def test_impossible_knobs_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        PolicySettings.model_validate(wrong)


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ValueError, match=r"no_such.*h200_llama8b_eagle3"):
        Profile.load("no_such")


def test_step_times_that_an_engine_knows_are_its_prior() -> None:
    told, silent = reporting("a-0", facts(step_ms={0: {1: 10}, 3: {1: 11}})), reporting("b-0")
    plans = MeasuredDepthPolicy(prior=StepTimes(step_ms={0: {1: 10}, 3: {1: 1000}})).decide({"a-0": told, "b-0": silent}, 0.0)
    assert plans["a-0"].table.depth(1) == 3
    assert plans["b-0"].table.depth(1) == 0


@pytest.mark.parametrize("name", packaged())
def test_packaged_profiles_are_valid_and_tell_where_they_come_from(name: str) -> None:
    profile = Profile.load(name)
    assert profile.hardware
    assert profile.software
    assert profile.ms(0, 1) > 0
