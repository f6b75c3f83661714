"""Every row of the table in docs/fleet.md, as observations and what the state machine makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.control.faults import Action, EngineHealth
from cluster.messages.settings import ControllerSettings
from cluster.messages.status import EngineState

SETTINGS = ControllerSettings(health_check_after_s=5, hung_after_s=30, start_within_s=60)
Observation = Callable[[EngineHealth], EngineHealth]


def passes(seconds: float) -> Observation:
    return lambda health: health.time_passed(seconds, SETTINGS)


def reports(new_tokens: bool = False) -> Observation:
    return lambda health: health.reported(new_tokens)


def says(doing: str) -> Observation:
    return lambda health: health.starts(doing)


def check(passed: bool) -> Observation:
    return lambda health: health.health_check(passed)


def late(health: EngineHealth) -> EngineHealth:
    return health.late(deadline_s=1)


def placed(health: EngineHealth) -> EngineHealth:
    return health.placed()


@dataclass(frozen=True)
class Expected:
    state: EngineState
    reason: str
    action: Action = "carry on"


NEW, SERVING = EngineHealth.created(), EngineHealth.created().reported(new_tokens=True)
Step = tuple[Observation, Expected]
WELL = Expected("serving", "")

# Row of the table: how the engine is before, and what follows from each observation in turn.
ROWS: dict[str, tuple[EngineHealth, list[Step]]] = {
    "its actor is killed": (
        SERVING,
        [
            (lambda health: health.gone("its actor died: killed"), Expected("failed", "its actor died: killed", "replace it")),
            (reports(), Expected("failed", "its actor died: killed", "replace it")),
        ],
    ),
    "its scheduler or detokenizer is killed": (
        SERVING,
        [(lambda health: health.gone("its actor is gone"), Expected("failed", "its actor is gone", "replace it"))],
    ),
    "its scheduler is stopped or hangs": (
        SERVING,
        [
            (passes(4), WELL),
            (reports(), WELL),
            (passes(1), Expected("serving", "", "check its health")),
            (check(passed=False), Expected("serving", "", "check its health")),
            (passes(29), Expected("serving", "", "check its health")),
            (reports(), Expected("serving", "", "check its health")),
            (passes(1), Expected("failed", "hung: no token for 35 s, though asked for one", "replace it")),
        ],
    ),
    "it has nothing to do": (
        SERVING,
        [
            (passes(5), Expected("serving", "", "check its health")),
            (check(passed=True), WELL),
            (reports(), WELL),
            (passes(4), WELL),
            (reports(new_tokens=True), WELL),
            (passes(4), WELL),
        ],
    ),
    "its actor is stopped or hangs": (
        SERVING,
        [
            (late, Expected("unhealthy", "no answer within 1 s")),
            (passes(34), Expected("unhealthy", "no answer within 1 s", "check its health")),
            (passes(1), Expected("failed", "hung: no token for 35 s, though asked for one", "replace it")),
        ],
    ),
    "it answers late": (
        SERVING,
        [
            (passes(20), Expected("serving", "", "check its health")),
            (late, Expected("unhealthy", "no answer within 1 s", "check its health")),
            (reports(new_tokens=True), WELL),
            (passes(4), WELL),
        ],
    ),
    "a call to it fails": (
        SERVING,
        [
            (lambda health: health.unreachable("connection lost"), Expected("unhealthy", "connection lost")),
            (reports(new_tokens=True), WELL),
        ],
    ),
    "it fails to start": (
        NEW,
        [
            (says("loading the model"), Expected("starting", "loading the model")),
            (
                lambda health: health.gave_up("ValueError: no such model"),
                Expected("failed", "ValueError: no such model", "replace it"),
            ),
        ],
    ),
    "it does not come up": (
        NEW,
        [
            (passes(20), Expected("starting", "its actor is being created")),
            (says("loading the model"), Expected("starting", "loading the model")),
            (late, Expected("starting", "loading the model")),
            (passes(20), Expected("starting", "loading the model")),
            (says("loading the model"), Expected("starting", "loading the model")),
            (passes(20), Expected("failed", "did not serve within 60 s; it was at: loading the model", "replace it")),
        ],
    ),
    "no node has its GPUs": (
        NEW,
        [
            (lambda health: health.unplaced("needs 2 GPUs"), Expected("waiting", "needs 2 GPUs")),
            (passes(1e6), Expected("waiting", "needs 2 GPUs")),
            (placed, Expected("starting", "its actor is being created")),
            (passes(59), Expected("starting", "its actor is being created")),
        ],
    ),
    "it is adopted and does not answer": (
        EngineHealth.found(),
        [
            (passes(34), Expected("starting", "adopted; it has not answered yet")),
            (passes(1), Expected("failed", "hung: no answer for 35 s", "replace it")),
        ],
    ),
    "it hangs while it drains": (
        SERVING,
        [
            (lambda health: health.drains("it is no longer wanted"), Expected("draining", "it is no longer wanted")),
            (reports(new_tokens=True), Expected("draining", "it is no longer wanted")),
            (late, Expected("draining", "it is no longer wanted")),
            (passes(35), Expected("failed", "hung: no token for 35 s, though asked for one", "replace it")),
        ],
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_observation_leads_to_the_state_the_reason_and_the_action(row: str) -> None:
    health, steps = ROWS[row]
    for number, (observe, expected) in enumerate(steps, 1):
        health = observe(health)
        assert Expected(health.state, health.reason, health.action(SETTINGS)) == expected, f"observation {number}"


def test_the_rows_are_those_of_the_table_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
    section = text.split("## When an engine fails\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?!what happens|---)([^|]*?) \|", section, re.MULTILINE)
    assert rows == list(ROWS)


def test_an_adopted_engine_is_not_known_until_it_answers_or_waits() -> None:
    adopted = EngineHealth.found()
    assert not adopted.known
    assert adopted.reported(new_tokens=True).known
    assert adopted.unplaced("needs 2 GPUs").known
    assert NEW.known
