import pytest
from pydantic import ValidationError

from cluster.messages.directive import DepthTable, Directive
from cluster.messages.report import Acceptance, EngineReport, StepCounts
from cluster.messages.settings import ControllerSettings
from cluster.policy.plan import FixedDepthPolicy, clamp
from tests.unit.builders import directive, facts, report, reporting, steps, table


@pytest.mark.parametrize(("batch", "depth"), [(1, 3), (8, 3), (9, 1), (32, 1), (33, 0), (10_000, 0)])
def test_depth_holds_from_its_batch_size_on(batch: int, depth: int) -> None:
    assert table({33: 0, 1: 3, 9: 1}).depth(batch) == depth


def test_a_table_that_is_not_enabled_is_depth_zero() -> None:
    assert table({1: 7}, enabled=False).depth(1) == 0


@pytest.mark.parametrize("depths", [{}, {2: 3}, {1: -1}, {1: 17}, {0: 1, 1: 1}])
def test_a_table_with_a_gap_or_an_impossible_depth_is_refused(depths: dict[int, int]) -> None:
    with pytest.raises(ValidationError, match="depth_by_batch"):
        DepthTable(depth_by_batch=depths)


def test_messages_survive_json_and_refuse_unknown_fields() -> None:
    sent = directive(depths={1: 3, 9: 1})
    assert Directive.model_validate_json(sent.model_dump_json()) == sent
    with pytest.raises(ValidationError, match="surprise"):
        Directive.model_validate({**sent.model_dump(), "surprise": 1})


def test_a_report_survives_json() -> None:
    sent = report(acceptance=Acceptance(reached=(9, 3), accepted=(3, 1)), steps=steps((0, 1, 9, 8, 0.5), (3, 8, 2, 0, 0.0)))
    assert EngineReport.model_validate_json(sent.model_dump_json()) == sent


def test_columns_of_unlike_lengths_are_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="'reached': 2, 'accepted': 1"):
        Acceptance(reached=(9, 3), accepted=(3,))
    with pytest.raises(ValidationError, match="'seconds': 0"):
        StepCounts(depth=(3,), batch=(1,), count=(5,), timed=(5,), seconds=())


def test_clamp_takes_the_deepest_candidate_that_is_not_deeper() -> None:
    assert clamp(table({1: 7, 5: 2, 9: 0}), (0, 1, 3)).depth_by_batch == {1: 3, 5: 1, 9: 0}


def test_fixed_policy_fits_each_engine() -> None:
    engines = {"a": reporting("a"), "b": reporting("b", facts(candidate_depths=(0, 5)))}
    plans = FixedDepthPolicy(table({1: 5}), "why").decide(engines, now=0.0)
    assert {name: plan.table.depth(1) for name, plan in plans.items()} == {"a": 3, "b": 5}
    assert plans["a"].reason == "why"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ControllerSettings(mode="off"), DepthTable(enabled=False)),
        (ControllerSettings(mode="on", depth_when_on=5), table({1: 5})),
        (ControllerSettings(depth_by_batch={1: 3, 9: 0}), table({1: 3, 9: 0})),
        (ControllerSettings(), None),
    ],
)
def test_mode_says_which_table_is_fixed(settings: ControllerSettings, expected: DepthTable | None) -> None:
    assert settings.table() == expected


@pytest.mark.parametrize("name", ["health_check_after_s", "probe_after_s"])
def test_the_health_check_is_set_by_its_name_or_its_former_one(name: str) -> None:
    assert ControllerSettings.model_validate({name: 7}).health_check_after_s == 7
    with pytest.raises(ValidationError, match=name):
        ControllerSettings.model_validate({name: 0})
