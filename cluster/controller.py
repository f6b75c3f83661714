"""The one brain: gathers every engine's report and pushes every engine's directive, tick by tick."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from cluster.fleet import Fleet, Member
from cluster.goodput import PolicySettings
from cluster.metrics import FleetMetrics
from cluster.policy import FixedPolicy, Plan, Policy
from cluster.protocol import Directive, EngineReport, NotServing
from cluster.settings import ControllerSettings, Mode
from cluster.status import EngineState, EngineStatus, FleetStatus
from cluster.window import ReportWindow

_LOG = logging.getLogger(__name__)


class MeasuredPolicy(Policy, Protocol):
    """A policy that learns, and keeps what it has learnt when its knobs change."""

    def configure(self, settings: PolicySettings) -> None: ...


@dataclass
class _Engine:
    """What the controller knows about one engine."""

    member: Member
    state: EngineState = "starting"
    detail: str = "its actor is being created"
    plan: Plan | None = None
    report: EngineReport | None = None
    reported_at: float | None = None
    in_force_s: float | None = None
    window: ReportWindow = field(default_factory=ReportWindow)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its plan changed, so that it need not wait for its next tick."""


class Controller:
    """Decides for the whole fleet at every tick, and exchanges with each engine in a loop of the engine's own: one that
    is dead or hung delays no other."""

    def __init__(self, fleet: Fleet, served_model_name: str, measured: MeasuredPolicy) -> None:
        """`measured` is the policy of mode auto where no table is configured."""
        self.incarnation = time.time_ns()
        self._fleet = fleet
        self._served_model_name = served_model_name
        self._measured = measured
        self._settings = ControllerSettings()
        self._policy: Policy = measured
        self._sequence = 0
        self._engines: dict[str, _Engine] = {}
        self._metrics = FleetMetrics()

    def configure(self, settings: ControllerSettings) -> None:
        """Follow new settings at once."""
        self._settings = settings
        self._measured.configure(settings.policy)
        table = settings.table()
        self._policy = self._measured if table is None else FixedPolicy(table, _why_fixed(settings))
        self._decide()

    def set_mode(self, mode: Mode) -> None:
        """Change the mode alone. It holds until the next `configure` or the controller's end."""
        self.configure(self._settings.model_copy(update={"mode": mode}))

    async def run(self) -> None:
        """Bring the fleet up, then decide at every tick, for ever."""
        members = await asyncio.to_thread(self._fleet.reconcile)
        self._engines = {name: _Engine(member) for name, member in members.items()}
        exchanges = [asyncio.create_task(self._exchange_for_ever(engine)) for engine in self._engines.values()]
        try:
            while True:
                self._decide()
                self._publish()
                # Returns early only if an engine's loop failed, which is a bug to be raised.
                done, _ = await asyncio.wait(exchanges, timeout=self._settings.tick_s, return_when=asyncio.FIRST_EXCEPTION)
                for failed in done:
                    failed.result()
        finally:
            for task in exchanges:
                task.cancel()

    def _decide(self) -> None:
        reports = {name: e.report for name, e in self._engines.items() if e.report and e.state == "serving"}
        for name, plan in self._policy.decide(reports, time.monotonic()).items():
            engine = self._engines[name]
            if engine.plan is None or engine.plan.table != plan.table:
                engine.news.set()
            engine.plan = plan

    def _publish(self) -> None:
        now = time.monotonic()
        for name, engine in self._engines.items():
            self._metrics.observe(self._status(name, engine, now))

    async def _exchange_for_ever(self, engine: _Engine) -> None:
        while True:
            engine.news.clear()
            await self._exchange(engine, self._directive(engine))
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(engine.news.wait(), self._settings.tick_s)

    def status(self) -> FleetStatus:
        now = time.monotonic()
        return FleetStatus(
            mode=self._settings.mode,
            controller=self.incarnation,
            namespace=self._fleet.namespace,
            served_model_name=self._served_model_name,
            engines=tuple(self._status(name, engine, now) for name, engine in self._engines.items()),
        )

    def _directive(self, engine: _Engine) -> Directive:
        """An engine that has not reported yet gets its own fallback: the policy cannot decide without its depths."""
        plan = engine.plan or Plan(engine.member.spec.fallback, "no report yet: the engine's own table")
        self._sequence += 1
        return Directive(
            incarnation=self.incarnation,
            sequence=self._sequence,
            table=plan.table,
            lease_s=self._settings.lease_s,
            reason=plan.reason,
        )

    async def _exchange(self, engine: _Engine, directive: Directive) -> None:
        """Send a directive and take the answer in. Ends only when the engine has answered or is known to be dead."""
        sent = time.monotonic()
        call: asyncio.Future[Any] = asyncio.ensure_future(engine.member.handle.exchange.remote(directive))
        done, _ = await asyncio.wait([call], timeout=self._settings.deadline_s)
        if not done and engine.state == "serving":
            engine.state, engine.detail = "unhealthy", f"no answer within {self._settings.deadline_s:g} s"
        try:
            self._take(engine, await call, directive, time.monotonic() - sent)
        except ActorDiedError as error:
            engine.state, engine.detail = "starting", f"its actor died and is replaced: {_first_line(error)}"
            engine.member = await asyncio.to_thread(self._fleet.replace, engine.member)
        except ActorUnavailableError as error:
            engine.state, engine.detail = "unhealthy", f"Ray is restarting its actor: {_first_line(error)}"
        except RayError as error:
            engine.state, engine.detail = "unhealthy", _first_line(error)
            _LOG.exception("engine %s did not take its directive", engine.member.spec.actor_name)

    def _take(self, engine: _Engine, answer: EngineReport | NotServing, directive: Directive, took_s: float) -> None:
        if isinstance(answer, NotServing):
            engine.state, engine.detail, engine.report = answer.state, answer.detail, None
            return
        now = time.monotonic()
        if engine.report is None or engine.report.applied.table != directive.table:
            engine.in_force_s = took_s
        engine.state, engine.detail = "serving", ""
        engine.report, engine.reported_at = answer, now
        engine.window.add(now, answer)

    def _status(self, name: str, engine: _Engine, now: float) -> EngineStatus:
        state, detail, spec = engine.state, engine.detail, engine.member.spec
        if state == "starting" and engine.report is None and spec.num_gpus and (missing := self._fleet.missing_gpus()):
            state, detail = "waiting", f"needs {spec.num_gpus} GPUs; the cluster is {missing:g} short of what the fleet needs"
        reported = engine.report is not None
        return EngineStatus(
            name=spec.name,
            actor=name,
            state=state,
            detail=detail,
            gpus=spec.num_gpus,
            accept_length=engine.window.accept_length() if reported else None,
            goodput=engine.window.goodput() if reported else None,
            acceptance=engine.window.acceptance() if reported else (),
            in_force_s=engine.in_force_s,
            report_age_s=now - engine.reported_at if engine.reported_at else None,
            report=engine.report,
        )


def _why_fixed(settings: ControllerSettings) -> str:
    if settings.mode == "auto":
        return "mode auto: the table of user_config"
    return f"mode {settings.mode}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
