"""Decisions about the fleet, without any actor."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.control.backoff import Backoff
from cluster.control.reconcile import Actions, Living, reconcile
from cluster.messages.spec import EngineSpec
from tests.unit.builders import spec

WANTED = {f"e-{i}": spec(name=f"e-{i}") for i in range(3)}


def actor(engine: str, **fields: Any) -> Living:
    fields = {"actor": f"{engine}-new" if fields.get("current", True) else f"{engine}-old", "state": "serving", **fields}
    return Living(engine=engine, **fields)


def old(engine: str, **fields: Any) -> Living:
    return actor(engine, current=False, **fields)


def names(specs: list[EngineSpec]) -> list[str]:
    return [s.name for s in specs]


def decided(actions: Actions) -> tuple[list[str], list[str], list[str]]:
    return names(actions.create), sorted(actions.drain), sorted(actions.remove)


def test_an_empty_cluster_gets_every_engine() -> None:
    assert decided(reconcile(WANTED, [])) == (["e-0", "e-1", "e-2"], [], [])


def test_a_whole_fleet_is_left_alone() -> None:
    assert decided(reconcile(WANTED, [actor(name) for name in WANTED])) == ([], [], [])


@pytest.mark.parametrize("state", ["starting", "waiting", "serving", "unhealthy", None])
def test_a_controller_that_died_while_it_created_leaves_nothing_doubled(state: Any) -> None:
    there = [actor("e-0", state=state, served=False), actor("e-1", state=state, served=False)]
    assert decided(reconcile(WANTED, there)) == (["e-2"], [], [])


def test_two_actors_of_one_engine_become_one() -> None:
    there = [
        actor("e-0", actor="young", state="starting", served=False, age_s=1),
        actor("e-0", actor="serving", age_s=0),
        actor("e-1", actor="first", age_s=9),
        actor("e-1", actor="second", age_s=5),
        actor("e-2"),
    ]
    assert decided(reconcile(WANTED, there)) == ([], ["second"], ["young"])


def test_a_lost_engine_is_removed_and_created_in_its_turn() -> None:
    there = [actor("e-0", lost="hung"), actor("e-1"), actor("e-2")]
    actions = reconcile(WANTED, there)
    assert decided(actions) == (["e-0"], [], ["e-0-new"])
    assert actions.remove["e-0-new"] == "hung"
    assert decided(reconcile(WANTED, there, waiting={"e-0"})) == ([], [], ["e-0-new"])


def test_scaling_down_drains_first() -> None:
    wanted = {"e-0": WANTED["e-0"]}
    there = [actor("e-0"), actor("e-1"), actor("e-2", state="starting", served=False)]
    assert decided(reconcile(wanted, there)) == ([], ["e-1-new"], ["e-2-new"])
    draining = [actor("e-0"), actor("e-1", state="draining")]
    assert decided(reconcile(wanted, draining)) == ([], [], [])
    drained = [actor("e-0"), actor("e-1", state="draining", drained=True)]
    assert decided(reconcile(wanted, drained)) == ([], [], ["e-1-new"])


def test_scaling_up_again_waits_for_an_engine_that_drains() -> None:
    there = [actor("e-0"), actor("e-1", state="draining"), actor("e-2")]
    assert decided(reconcile(WANTED, there)) == ([], [], [])


def steps(there: list[Living], surge: int, waiting_for_gpus: bool = False) -> list[list[str]]:
    """Play a rollout to its end: actors there after each decision, drains and starts taking one step each."""
    seen = []
    for _ in range(30):
        actions = reconcile(WANTED, there, surge=surge)
        after = []
        for a in there:
            if a.actor in actions.remove:
                continue
            if a.state == "draining":
                a = Living(a.actor, a.engine, "draining", a.current, drained=True)
            elif a.actor in actions.drain:
                a = Living(a.actor, a.engine, "draining", a.current)
            elif a.state in ("starting", "waiting") and (not waiting_for_gpus or len(there) <= len(WANTED)):
                a = Living(a.actor, a.engine, "serving", a.current)
            after.append(a)
        state: Any = "waiting" if waiting_for_gpus else "starting"
        there = after + [actor(s.name, state=state, served=False) for s in actions.create]
        seen.append([f"{a.actor}:{a.state}" for a in there])
    return seen


@pytest.mark.parametrize("surge", [0, 1, 2])
def test_a_changed_configuration_is_rolled_out_within_its_surge(surge: int) -> None:
    seen = steps([old(name) for name in WANTED], surge)
    assert sorted(seen[-1]) == ["e-0-new:serving", "e-1-new:serving", "e-2-new:serving"]
    for there in seen:
        assert len(there) <= len(WANTED) + surge, there
        assert sum(a.endswith(":serving") for a in there) >= len(WANTED) - (not surge), there


def test_a_surge_that_finds_no_gpus_still_ends() -> None:
    assert sorted(steps([old(name) for name in WANTED], surge=1, waiting_for_gpus=True)[-1]) == [
        "e-0-new:serving", "e-1-new:serving", "e-2-new:serving",
    ]  # fmt: skip


def test_a_rollout_stops_at_an_engine_that_does_not_come_up() -> None:
    failing = [old("e-1"), old("e-2")]
    assert decided(reconcile(WANTED, failing, waiting={"e-0"})) == ([], [], [])
    starting = [actor("e-0", state="starting", served=False), old("e-1"), old("e-2")]
    assert decided(reconcile(WANTED, starting)) == ([], [], [])


def test_an_old_engine_that_is_of_no_use_makes_way_at_once() -> None:
    there = [old("e-0", state="starting", served=False), old("e-1", state="unhealthy"), actor("e-2")]
    assert decided(reconcile(WANTED, there)) == (["e-0"], [], ["e-0-old"])
    later = [actor("e-0"), old("e-1", state="unhealthy"), actor("e-2")]
    assert decided(reconcile(WANTED, later)) == ([], ["e-1-old"], [])


def test_engines_of_another_model_name_are_drained_together() -> None:
    there = [old(name, serves_model=False) for name in WANTED]
    assert decided(reconcile(WANTED, there)) == ([], ["e-0-old", "e-1-old", "e-2-old"], [])


def test_engines_of_other_names_serve_until_those_in_their_place_do() -> None:
    there = [actor("x-0"), actor("x-1")]
    wanted = {name: WANTED[name] for name in ("e-0", "e-1")}
    assert decided(reconcile(wanted, there)) == (["e-0", "e-1"], [], [])
    starting = [actor(name, state="starting", served=False) for name in wanted]
    assert decided(reconcile(wanted, there + starting)) == ([], [], [])
    assert decided(reconcile(wanted, [*there, actor("e-0"), starting[1]])) == ([], [], [])
    assert decided(reconcile(wanted, [*there, actor("e-0"), actor("e-1")])) == ([], ["x-0-new", "x-1-new"], [])


def test_engines_of_other_names_make_way_one_at_a_time_for_those_that_wait_for_their_gpus() -> None:
    """Four engines of one GPU become two of two, on four GPUs."""
    wanted = {name: WANTED[name] for name in ("e-0", "e-1")}
    there = [actor(f"x-{i}") for i in range(4)]
    serving = []
    for _ in range(40):
        actions = reconcile(wanted, there)
        after = []
        for a in there:
            if a.actor in actions.remove:
                continue
            state, drained = a.state, a.state == "draining"
            if a.actor in actions.drain:
                state = "draining"
            elif state == "starting":
                state = "serving"
            after.append(Living(a.actor, a.engine, state, a.current, served=a.served or state == "serving", drained=drained))
        free = 4 - sum(1 if a.engine.startswith("x") else 2 for a in after if a.state != "waiting")
        for i, a in enumerate(after):
            if a.state == "waiting" and free >= 2:
                after[i], free = Living(a.actor, a.engine, "starting", served=False), free - 2
        there = after + [actor(s.name, state="waiting", served=False) for s in actions.create]
        serving.append(sum(1 if a.engine.startswith("x") else 2 for a in there if a.state == "serving"))
    assert {a.engine for a in there} == {"e-0", "e-1"}
    assert min(serving) >= 2, f"GPUs that serve: {serving}"


def test_an_adopted_engine_is_judged_only_once_it_was_heard() -> None:
    there = [old("e-0", state=None), old("e-1"), actor("x-0", state=None), actor("e-2")]
    assert decided(reconcile(WANTED, there)) == ([], [], [])


def test_the_wait_before_an_engine_is_created_again_grows_and_starts_over() -> None:
    backoff, waits = Backoff(), []
    for _ in range(12):
        backoff.failed("out of memory", served_s=0, now=100)
        waits.append(backoff.until - 100)
    assert waits[:5] == [0, 2, 4, 8, 16]
    assert waits[-1] == 300
    assert "12 times in a row, last: out of memory; next try in 290 s" in backoff.describe(110)
    backoff.failed("killed", served_s=100, now=500)
    assert (backoff.until, backoff.failures) == (500, 1)
