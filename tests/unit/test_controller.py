"""The controller against fake engines: what it does when they are slow, hung, dead or not there yet."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from cluster.control.controller import Controller
from cluster.messages.directive import Applied, Directive
from cluster.messages.hello import EngineHello
from cluster.messages.report import EngineReport, Load, NotServing
from cluster.messages.request_socket import Address
from cluster.messages.settings import ControllerSettings, PolicySettings
from cluster.messages.spec import EngineSpec
from cluster.messages.status import FleetStatus
from cluster.policy.plan import Plan, ReportingEngine
from tests.unit.builders import facts, report, spec, table

KEY = "the key of an engine's address"
Answer = Callable[[Directive], Awaitable[EngineReport | NotServing]]


class FakeEngine:
    """Stands in for an actor's handle, `cluster.messages.engine_calls.EngineCalls`."""

    def __init__(self, answer: Answer, check_health: Callable[[], Awaitable[None]] | None = None, made_of: Any = None) -> None:
        self.taken: list[Directive] = []
        self.checks = self.hellos = 0
        self.exchange = SimpleNamespace(remote=self._exchange)
        self.check_health = SimpleNamespace(remote=self._check_health)
        self.hello = SimpleNamespace(remote=self._hello)
        self._answer = answer
        self._answer_check = check_health or asyncio.Event().wait
        self._made_of = made_of or spec()

    def _exchange(self, directive: Directive) -> Awaitable[Any]:
        self.taken.append(directive)
        return self._answer(directive)

    def _check_health(self) -> Awaitable[Any]:
        self.checks += 1
        return self._answer_check()

    async def _hello(self) -> EngineHello:
        self.hellos += 1
        return EngineHello(spec=self._made_of, facts=facts(), address=Address(host="h", port=1, key=KEY))


class FakeFleet:
    """Creates fake engines: for each name those of `engines[name]` in turn, and the last one again and again."""

    namespace = "test"

    def __init__(self, engines: dict[str, FakeEngine | list[FakeEngine]], there: dict[str, FakeEngine] | None = None) -> None:
        self._next = {name: e if isinstance(e, list) else [e] for name, e in engines.items()}
        self.actors = dict(there or {})
        self.killed: dict[str, str] = {}

    def wanted(self, counts: Mapping[str, int]) -> dict[str, EngineSpec]:
        return {name: spec(name=name) for name in self._next if counts.get(name, 1)}

    def living(self) -> set[str]:
        return set(self.actors)

    def find(self, actor: str) -> FakeEngine | None:
        return self.actors.get(actor)

    def create(self, actor: str, made_of: EngineSpec) -> FakeEngine:
        engines = self._next[made_of.name]
        self.actors[actor] = engines.pop(0) if len(engines) > 1 else engines[0]
        return self.actors[actor]

    def kill(self, actor: str, why: str) -> None:
        self.killed[actor] = why
        self.actors.pop(actor, None)

    def shortage(self, handle: Any, gpus: int) -> str:
        return ""


class CountingPolicy:
    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def configure(self, settings: PolicySettings) -> None:
        self.settings = settings

    def decide(self, reporting: Mapping[str, ReportingEngine], now: float) -> dict[str, Plan]:
        self.seen.append(sorted(reporting))
        return {name: Plan(table({1: 1}), "measured") for name in reporting}


async def prompt(directive: Directive) -> EngineReport:
    return report()


async def hung(directive: Directive) -> EngineReport:
    await asyncio.Event().wait()
    raise AssertionError


async def starting(directive: Directive) -> NotServing:
    return NotServing(engine="e", state="starting", detail="loading")


@pytest.fixture(autouse=True)
def quick_reconciliation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.control.controller.RECONCILE_EVERY_S", 0.02)
    monkeypatch.setattr("cluster.control.backoff.FIRST_S", 0.05)
    monkeypatch.setattr("cluster.control.engine_link.SETTLE_S", 0.1)


def run(
    engines: dict[str, FakeEngine] | FakeFleet,
    settings: ControllerSettings,
    until: Callable[[Controller], bool],
    policy: CountingPolicy | None = None,
) -> Controller:
    """Run a controller until something is true of it. What never becomes true fails in the test's own assertions."""

    async def main() -> Controller:
        fleet = engines if isinstance(engines, FakeFleet) else FakeFleet(engines)  # type: ignore[arg-type]
        controller = Controller(fleet, "tiny", policy or CountingPolicy())  # type: ignore[arg-type]
        controller.configure(settings)
        running = asyncio.create_task(controller.run())
        for _ in range(6000):
            await asyncio.sleep(0.01)
            if until(controller):
                break
        running.cancel()
        return controller

    return asyncio.run(main())


async def eventually(true: Callable[[], bool]) -> None:
    """Wait for a condition, with a generous limit."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


FAST = ControllerSettings(tick_s=0.02, deadline_s=0.1)


def states(controller: Controller) -> dict[str, str]:
    return {engine.name: engine.state for engine in controller.status().engines}


def test_directives_count_up_and_carry_the_plan_once_an_engine_has_reported() -> None:
    engine = FakeEngine(prompt)
    controller = run({"a-0": engine}, FAST, lambda _: len(engine.taken) > 5)
    orders = [directive.order for directive in engine.taken]
    assert orders == sorted(set(orders))
    assert engine.taken[0].table == spec().fallback
    assert engine.taken[-1].table == table({1: 1})
    assert engine.taken[-1].reason == "measured"
    assert states(controller) == {"a-0": "serving"}


def test_a_hung_engine_is_marked_and_delays_no_other() -> None:
    quick, stuck = FakeEngine(prompt), FakeEngine(hung)
    run({"a-0": quick, "b-0": stuck}, FAST, lambda _: len(quick.taken) > 20)
    assert len(quick.taken) > 20
    assert len(stuck.taken) == 1


def test_an_engine_that_stops_answering_is_unhealthy_and_no_longer_decided_for() -> None:
    async def once(directive: Directive) -> EngineReport:
        return await (prompt(directive) if directive.sequence <= 2 else hung(directive))

    policy = CountingPolicy()
    controller = run(
        {"a-0": FakeEngine(once)}, FAST, lambda c: states(c) == {"a-0": "unhealthy"} and policy.seen[-1] == [], policy
    )
    assert states(controller) == {"a-0": "unhealthy"}
    assert policy.seen[-1] == []
    assert "0.1 s" in controller.status().engines[0].detail


def test_an_engine_that_is_not_up_is_shown_as_it_says() -> None:
    controller = run({"a-0": FakeEngine(starting)}, FAST, lambda c: any(e.detail == "loading" for e in c.status().engines))
    (engine,) = controller.status().engines
    assert (engine.state, engine.detail) == ("starting", "loading")


def test_a_mode_change_does_not_wait_for_the_next_tick() -> None:
    async def main() -> list[Directive]:
        engine = FakeEngine(prompt)
        controller = Controller(FakeFleet({"a-0": engine}), "tiny", CountingPolicy())  # type: ignore[arg-type]
        controller.configure(ControllerSettings(tick_s=10))
        running = asyncio.create_task(controller._reconcile_for_ever())  # and no tick
        await eventually(lambda: states(controller) == {"a-0": "serving"})
        for mode, directives in [("auto", 2), ("off", 3)]:
            controller.set_mode(mode)
            await eventually(lambda wanted=directives: len(engine.taken) == wanted)
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

    run({"a-0": engine}, FAST.model_copy(update={"mode": mode}), lambda _: bool(engine.taken) and last() == wanted)
    assert last() == wanted


def test_knobs_reach_the_policy() -> None:
    policy = CountingPolicy()
    knobs = PolicySettings(tpot_limit_ms=20)
    run({"a-0": FakeEngine(prompt)}, FAST.model_copy(update={"policy": knobs}), lambda _: True, policy)
    assert policy.settings == knobs


LIVELY = FAST.model_copy(update={"health_check_after_s": 0.1, "hung_after_s": 0.3})


def details(controller: Controller) -> list[str]:
    return [engine.detail for engine in controller.status().engines]


async def died(directive: Directive) -> EngineReport:
    raise ActorDiedError


async def idle_token() -> None:
    return None


def test_a_dead_engine_is_created_anew_and_the_waits_grow() -> None:
    fleet = FakeFleet({"a-0": FakeEngine(died)})
    controller = run(fleet, FAST, lambda c: any("failed 3 times in a row" in d for d in details(c)))
    assert any("failed 3 times in a row, last: its actor died" in d for d in details(controller)), details(controller)
    assert states(controller) == {"a-0": "failed"}


def test_an_idle_engine_is_asked_for_a_token_and_lives_on() -> None:
    engine = FakeEngine(prompt, idle_token)
    fleet = FakeFleet({"a-0": engine})
    controller = run(fleet, LIVELY, lambda _: engine.checks > 5)
    assert engine.checks > 5
    assert states(controller) == {"a-0": "serving"}
    assert not fleet.killed


def test_an_engine_that_yields_tokens_is_not_asked_for_one() -> None:
    async def busy(directive: Directive) -> EngineReport:
        return report(tokens=directive.sequence)

    engine = FakeEngine(busy)
    run(FakeFleet({"a-0": engine}), LIVELY, lambda _: len(engine.taken) > 50)
    assert len(engine.taken) > 50
    assert engine.checks == 0


def test_an_engine_that_answers_but_generates_nothing_is_replaced() -> None:
    stuck, healthy = FakeEngine(prompt), FakeEngine(prompt, idle_token)
    fleet = FakeFleet({"a-0": [stuck, healthy]})
    controller = run(fleet, LIVELY, lambda c: healthy.checks > 1)
    assert [why for why in fleet.killed.values() if "hung: no token for" in why]
    assert states(controller) == {"a-0": "serving"}


def test_an_engine_that_answers_no_more_is_replaced() -> None:
    async def once(directive: Directive) -> EngineReport:
        return await (prompt(directive) if directive.sequence <= 2 else hung(directive))

    healthy = FakeEngine(prompt, idle_token)
    fleet = FakeFleet({"a-0": [FakeEngine(once), healthy]})
    controller = run(fleet, LIVELY, lambda c: healthy.checks > 1)
    assert states(controller) == {"a-0": "serving"}
    assert len(fleet.killed) == 1


def test_time_that_the_controller_lost_is_not_held_against_the_engines() -> None:
    fleet = FakeFleet({"a-0": FakeEngine(prompt, idle_token)})

    def stop_for_a_while() -> Iterator[bool]:
        yield from (False for _ in range(30))
        time.sleep(1.0)  # as a stopped process would, with everything that was due meanwhile coming at once
        yield from (False for _ in range(20))
        yield True

    pauses = stop_for_a_while()
    run(fleet, LIVELY, lambda _: next(pauses))
    assert not fleet.killed


def test_an_engine_that_failed_to_start_is_removed_and_says_why() -> None:
    async def failed(directive: Directive) -> NotServing:
        return NotServing(engine="a-0", state="failed", detail="ValueError: no such model")

    fleet = FakeFleet({"a-0": FakeEngine(failed)})
    controller = run(fleet, FAST, lambda c: any("no such model; next try" in d for d in details(c)))
    assert any("no such model; next try" in d for d in details(controller)), details(controller)


def test_the_next_controller_adopts_and_drains_what_is_not_wanted() -> None:
    def loaded(running: int) -> Answer:
        async def answer(directive: Directive) -> EngineReport:
            return report(load=Load(running=running, waiting=0, kv_usage=0))

        return answer

    kept = spec(name="a-0").new_actor_name()
    idle, endless = "b-0-00000000-000000", "c-0-00000000-000000"
    fleet = FakeFleet(
        {"a-0": FakeEngine(prompt)},
        {
            kept: FakeEngine(prompt, idle_token),
            idle: FakeEngine(loaded(0), made_of=spec(name="b-0", drain_s=60)),
            endless: FakeEngine(loaded(1), made_of=spec(name="c-0", drain_s=0.5)),
        },
    )
    seen: set[str] = set()

    def gone(controller: Controller) -> bool:
        seen.update(f"{e.name} {e.state}: {e.detail}" for e in controller.status().engines)
        return len(fleet.killed) == 2

    controller = run(fleet, FAST, gone)
    assert list(fleet.killed) == [idle, endless]
    assert "c-0 draining: it is no longer wanted" in seen
    assert [e.actor for e in controller.status().engines] == [kept]


def test_a_controller_that_was_superseded_leaves_the_engines_alone() -> None:
    async def newer(directive: Directive) -> EngineReport:
        applied = Applied(source="controller", incarnation=directive.incarnation + 1, table=table())
        return report(accepted=False, applied=applied)

    ours, new = spec(name="a-0").new_actor_name(), "a-0-00000000-000000"
    fleet = FakeFleet(
        {"a-0": FakeEngine(prompt)}, {ours: FakeEngine(newer), new: FakeEngine(newer, made_of=spec(name="a-0", drain_s=0))}
    )
    exchanges = fleet.actors[new].taken
    run(fleet, FAST, lambda _: len(exchanges) > 20)
    assert len(exchanges) > 20
    assert not fleet.killed


def test_a_fleet_is_resized_while_it_runs() -> None:
    async def main() -> None:
        fleet = FakeFleet({"a-0": FakeEngine(prompt, idle_token), "b-0": FakeEngine(prompt, idle_token)})
        controller = Controller(fleet, "tiny", CountingPolicy())  # type: ignore[arg-type]
        controller.configure(FAST)
        running = asyncio.create_task(controller.run())
        for counts, wanted in [({}, ["a-0", "b-0"]), ({"b-0": 0}, ["a-0"]), ({"a-0": 0}, ["b-0"])]:
            controller.configure(FAST.model_copy(update={"engines": counts}))
            await eventually(lambda wanted=wanted: states(controller) == dict.fromkeys(wanted, "serving"))
        running.cancel()

    asyncio.run(main())


def test_what_never_changes_is_asked_for_once_and_its_key_is_not_shown() -> None:
    engine = FakeEngine(prompt)
    controller = run({"a-0": engine}, FAST, lambda _: len(engine.taken) > 5)
    assert engine.hellos == 1
    (status,) = controller.status().engines
    assert status.facts == facts()
    assert KEY not in controller.status().model_dump_json()
    assert KEY.encode() not in controller.snapshot().content


class BuildCount:
    """Counts how often a controller puts its status together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.builds = 0
        build = Controller._build_status

        def counted(controller: Controller) -> FleetStatus:
            self.builds += 1
            return build(controller)

        monkeypatch.setattr(Controller, "_build_status", counted)


def test_status_and_snapshot_are_built_once_a_tick_however_often_they_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    count = BuildCount(monkeypatch)
    controller = Controller(FakeFleet({"a-0": FakeEngine(prompt)}), "tiny", CountingPolicy())  # type: ignore[arg-type]
    controller.configure(FAST)
    for tick in range(1, 4):
        controller.tick()
        contents = {id(controller.snapshot().content) for _ in range(8)}
        assert [controller.status().mode for _ in range(8)] == ["auto"] * 8
        assert count.builds == tick
        assert len(contents) == 1


def test_a_change_is_in_the_next_status_and_the_age_grows_meanwhile() -> None:
    controller = Controller(FakeFleet({"a-0": FakeEngine(prompt)}), "tiny", CountingPolicy())  # type: ignore[arg-type]
    controller.configure(FAST)
    controller.tick()
    first, second = controller.status(), controller.snapshot()
    assert 0 <= first.age_s <= second.age_s
    controller.set_mode("off")
    assert controller.status().mode == "off"
    controller.refuse("no such group")
    controller.set_mode("on")
    assert controller.status().refused == "no such group"
    controller.configure(FAST)
    assert controller.status().refused == ""


def test_a_change_of_state_is_in_the_next_snapshot_without_a_tick() -> None:
    dead = asyncio.Event()

    async def until_dead(directive: Directive) -> EngineReport:
        if dead.is_set():
            raise ActorDiedError
        return report()

    async def main() -> None:
        fleet = FakeFleet({"a-0": FakeEngine(until_dead, idle_token)})
        controller = Controller(fleet, "tiny", CountingPolicy())  # type: ignore[arg-type]
        controller.configure(ControllerSettings())
        running = asyncio.create_task(controller._reconcile_for_ever())  # and no tick
        await eventually(lambda: len(controller.snapshot().unpack().serving) == 1)
        dead.set()
        fleet.actors.clear()
        await eventually(lambda: not controller.snapshot().unpack().serving)
        running.cancel()

    asyncio.run(main())
