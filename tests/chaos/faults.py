"""What is done to a running fleet, and how to tell that it is whole again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx
import psutil
import ray

from cluster.control.ray_internals import pids, replica_prefix
from cluster.messages.directive import DepthTable, Directive
from cluster.messages.report import EngineReport
from cluster.messages.status import EngineStatus, FleetStatus
from tests.fleet import status

MARK = "SPECFLEET_CHAOS"
"""Environment variable that all processes of the fleet inherit."""

Whole = Callable[[FleetStatus], bool]


CONTROLLER, INGRESS = replica_prefix("specfleet", "Controller"), replica_prefix("specfleet", "Ingress")


def marked() -> dict[int, str]:
    """Living processes of the fleet, and of all that it ever started: what they call themselves by pid."""
    found = {}
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())[:80]
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def engine_processes() -> dict[int, str]:
    """Those that belong to engines."""
    return {pid: name for pid, name in marked().items() if "EngineActor" in name or "sglang" in name or "watchdog.py" in name}


def _child(actor: str, title: str) -> int:
    (parent,) = pids(actor)
    (child,) = [p.pid for p in psutil.Process(parent).children(recursive=True) if title in " ".join(p.cmdline())]
    return child


@dataclass(frozen=True)
class Fault:
    """Something that is done to one engine, or to the application around it."""

    name: str
    strike: Callable[[EngineStatus, httpx.AsyncClient], Awaitable[Whole]]
    """Does it, and returns what is true once the fleet is whole again."""
    within_s: float
    """It must be by then."""


def _replaced(victim: EngineStatus) -> Whole:
    def whole(fleet: FleetStatus) -> bool:
        return len(fleet.serving) == len(fleet.engines) == 2 and victim.actor not in {e.actor for e in fleet.engines}

    return whole


def _to_engine(sent: signal.Signals, process: Callable[[str], int]) -> Callable[..., Awaitable[Whole]]:
    async def strike(victim: EngineStatus, client: httpx.AsyncClient) -> Whole:
        os.kill(process(victim.actor), sent)
        return _replaced(victim)

    return strike


async def _kill_controller(victim: EngineStatus, client: httpx.AsyncClient) -> Whole:
    before = await status(client)
    (pid,) = pids(CONTROLLER)
    os.kill(pid, signal.SIGKILL)
    return _adopted(before)


def _adopted(before: FleetStatus) -> Whole:
    """The same engines, never restarted, follow a new controller."""

    def whole(fleet: FleetStatus) -> bool:
        if fleet.controller == before.controller or len(fleet.serving) != 2:
            return False
        assert {e.actor for e in fleet.engines} == {e.actor for e in before.engines}, "an engine was not adopted"
        return all(e.report and e.report.applied.incarnation == fleet.controller for e in fleet.engines)

    return whole


async def _kill_ingress(victim: EngineStatus, client: httpx.AsyncClient) -> Whole:
    replicas = pids(INGRESS)
    assert len(replicas) == 2
    os.kill(replicas[0], signal.SIGKILL)

    def whole(fleet: FleetStatus) -> bool:
        now = pids(INGRESS)
        return len(fleet.serving) == 2 and len(now) == 2 and replicas[0] not in now

    return whole


async def _drop_the_lease(victim: EngineStatus, client: httpx.AsyncClient) -> Whole:
    """Stop the controller for longer than the lease, and see the fallback in force."""
    before = await status(client)
    (pid,) = pids(CONTROLLER)
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(4.0)
        for engine in before.engines:
            assert (await _report(engine.actor, before.namespace)).applied.source == "fallback"
    finally:
        os.kill(pid, signal.SIGCONT)

    def whole(fleet: FleetStatus) -> bool:
        assert {e.actor for e in fleet.engines} == {e.actor for e in before.engines}, "an engine was blamed for it"
        return len(fleet.serving) == 2 and all(e.report and e.report.applied.source == "controller" for e in fleet.engines)

    return whole


async def _report(actor: str, namespace: str) -> EngineReport:
    """An engine's report in answer to a directive that it must ignore."""
    stale = Directive(incarnation=0, sequence=0, table=DepthTable(), lease_s=1)
    report: EngineReport = await ray.get_actor(actor, namespace).exchange.remote(stale)
    return report


def _actor(name: str) -> int:
    (pid,) = pids(name)
    return pid


FAULTS = (
    Fault("kill -9 engine actor", _to_engine(signal.SIGKILL, _actor), 120),
    Fault("kill -9 controller", _kill_controller, 60),
    Fault("kill -9 scheduler", _to_engine(signal.SIGKILL, lambda actor: _child(actor, "sglang::scheduler")), 120),
    Fault("kill -9 ingress", _kill_ingress, 60),
    Fault("SIGSTOP scheduler", _to_engine(signal.SIGSTOP, lambda actor: _child(actor, "sglang::scheduler")), 140),
    Fault("drop the lease", _drop_the_lease, 30),
    Fault("kill -9 detokenizer", _to_engine(signal.SIGKILL, lambda actor: _child(actor, "sglang::detokenizer")), 120),
    Fault("SIGSTOP engine actor", _to_engine(signal.SIGSTOP, _actor), 140),
)
