"""The controller against fake engines: what it does when they are slow, hung, dead or not there yet."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from cluster.controller import Controller
from cluster.fleet import Member
from cluster.goodput import PolicySettings
from cluster.policy import Plan
from cluster.protocol import Directive, EngineReport, NotServing
from cluster.settings import ControllerSettings
from tests.unit.builders import report, spec, table

Answer = Callable[[Directive], Awaitable[EngineReport | NotServing]]


class FakeEngine:
    """Stands in for an actor handle: `handle.exchange.remote(directive)`."""

    def __init__(self, answer: Answer) -> None:
        self.taken: list[Directive] = []
        self.exchange = self
        self._answer = answer

    def remote(self, directive: Directive) -> Awaitable[Any]:
        self.taken.append(directive)
        return self._answer(directive)


class FakeFleet:
    namespace = "test"

    def __init__(self, engines: dict[str, FakeEngine]) -> None:
        self._engines = engines

    def missing_gpus(self) -> float:
        return 0.0

    def reconcile(self) -> dict[str, Member]:
        return {name: Member(spec(name=name), engine) for name, engine in self._engines.items()}


class CountingPolicy:
    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def configure(self, settings: PolicySettings) -> None:
        self.settings = settings

    def decide(self, reports: Mapping[str, EngineReport], now: float) -> dict[str, Plan]:
        self.seen.append(sorted(reports))
        return {name: Plan(table({1: 1}), "measured") for name in reports}


async def prompt(directive: Directive) -> EngineReport:
    return report()


async def hung(directive: Directive) -> EngineReport:
    await asyncio.Event().wait()
    raise AssertionError


async def starting(directive: Directive) -> NotServing:
    return NotServing(engine="e", state="starting", detail="loading")


def run(
    engines: dict[str, FakeEngine],
    settings: ControllerSettings,
    until: Callable[[Controller], bool],
    policy: CountingPolicy | None = None,
) -> Controller:
    """Run a controller until something is true of it. What never becomes true fails in the test's own assertions."""

    async def main() -> Controller:
        controller = Controller(FakeFleet(engines), "tiny", policy or CountingPolicy())  # type: ignore[arg-type]
        controller.configure(settings)
        running = asyncio.create_task(controller.run())
        for _ in range(500):
            await asyncio.sleep(0.01)
            if until(controller):
                break
        running.cancel()
        return controller

    return asyncio.run(main())


FAST = ControllerSettings(tick_s=0.02, deadline_s=0.1)


def states(controller: Controller) -> dict[str, str]:
    return {engine.name: engine.state for engine in controller.status().engines}


def test_directives_count_up_and_carry_the_plan_once_an_engine_has_reported() -> None:
    engine = FakeEngine(prompt)
    controller = run({"a": engine}, FAST, lambda _: len(engine.taken) > 5)
    orders = [directive.order for directive in engine.taken]
    assert orders == sorted(set(orders))
    assert engine.taken[0].table == spec().fallback
    assert engine.taken[-1].table == table({1: 1})
    assert engine.taken[-1].reason == "measured"
    assert states(controller) == {"a": "serving"}


def test_a_hung_engine_is_marked_and_delays_no_other() -> None:
    quick, stuck = FakeEngine(prompt), FakeEngine(hung)
    run({"a": quick, "b": stuck}, FAST, lambda _: len(quick.taken) > 20)
    assert len(quick.taken) > 20
    assert len(stuck.taken) == 1


def test_an_engine_that_stops_answering_is_unhealthy_and_no_longer_decided_for() -> None:
    async def once(directive: Directive) -> EngineReport:
        return await (prompt(directive) if directive.sequence <= 2 else hung(directive))

    policy = CountingPolicy()
    controller = run({"a": FakeEngine(once)}, FAST, lambda c: states(c) == {"a": "unhealthy"} and policy.seen[-1] == [], policy)
    assert states(controller) == {"a": "unhealthy"}
    assert policy.seen[-1] == []
    assert "0.1 s" in controller.status().engines[0].detail


def test_an_engine_that_is_not_up_is_shown_as_it_says() -> None:
    controller = run({"a": FakeEngine(starting)}, FAST, lambda c: any(e.detail == "loading" for e in c.status().engines))
    (engine,) = controller.status().engines
    assert (engine.state, engine.detail) == ("starting", "loading")


def test_a_mode_change_does_not_wait_for_the_next_tick() -> None:
    async def main() -> list[Directive]:
        engine = FakeEngine(prompt)
        controller = Controller(FakeFleet({"a": engine}), "tiny", CountingPolicy())  # type: ignore[arg-type]
        controller.configure(ControllerSettings(tick_s=10))
        running = asyncio.create_task(controller.run())
        await asyncio.sleep(0.3)
        controller.set_mode("auto")
        await asyncio.sleep(0.3)
        controller.set_mode("off")
        await asyncio.sleep(0.3)
        running.cancel()
        return engine.taken

    taken = asyncio.run(main())
    assert [directive.table.enabled for directive in taken] == [False, True, False]
    assert taken[-1].reason == "mode off"


@pytest.mark.parametrize("mode", ["auto", "on", "off"])
def test_modes_choose_the_policy(mode: Any) -> None:
    engine = FakeEngine(prompt)
    wanted = {"auto": (1, "measured"), "on": (3, "mode on"), "off": (0, "mode off")}[mode]

    def last() -> tuple[int, str]:
        return engine.taken[-1].table.depth(1), engine.taken[-1].reason

    run({"a": engine}, FAST.model_copy(update={"mode": mode}), lambda _: bool(engine.taken) and last() == wanted)
    assert last() == wanted


def test_knobs_reach_the_policy() -> None:
    policy = CountingPolicy()
    knobs = PolicySettings(tpot_limit_ms=20)
    run({"a": FakeEngine(prompt)}, FAST.model_copy(update={"policy": knobs}), lambda _: True, policy)
    assert policy.settings == knobs
