"""The actor offers the calls that its callers are typed against."""

from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

import pytest

from cluster.messages.engine_calls import EngineCalls
from workers.actor import EngineActor

CALLS = [name for name, member in vars(EngineCalls).items() if isinstance(member, property)]


def test_there_are_calls() -> None:
    assert set(CALLS) == {"hello", "exchange", "check_health"}


@pytest.mark.parametrize("name", CALLS)
def test_the_actor_takes_the_arguments_and_gives_the_answer(name: str) -> None:
    call = get_type_hints(getattr(EngineCalls, name).fget)["return"]
    arguments, answer = get_args(call)
    method = getattr(EngineActor.__ray_metadata__.modified_class, name)
    assert inspect.iscoroutinefunction(method)
    *taken, given = get_type_hints(method).values()
    assert (taken, given) == (list(arguments), answer)


@pytest.mark.parametrize("name", CALLS)
def test_no_call_queues_behind_another_kind(name: str) -> None:
    method = getattr(EngineActor.__ray_metadata__.modified_class, name)
    assert method.__ray_concurrency_group__ == "control"
