"""The controller's end of one engine: calls its actor, and keeps what the answers say."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from cluster.control.faults import EngineHealth
from cluster.control.reconcile import Living
from cluster.control.report_window import ReportWindow
from cluster.messages.directive import Directive
from cluster.messages.engine_calls import EngineCalls
from cluster.messages.hello import ServingFacts
from cluster.messages.report import EngineReport, NotServing
from cluster.messages.settings import ControllerSettings
from cluster.messages.spec import EngineSpec, engine_of
from cluster.messages.status import EngineState, EngineStatus
from cluster.policy.plan import Plan, ReportingEngine

_LOG = logging.getLogger(__name__)

SETTLE_S = 1.0  # a draining engine may get requests from snapshots this old
CHECK_AGAIN_S = 1.0  # after a health check that failed

Answer = TypeVar("Answer")


class EngineLink:
    """Exchanges directives for reports with one engine actor, and checks its health when it yields no tokens.

    `EngineHealth` decides what an answer, or a missing one, means for the engine's state.
    """

    def __init__(
        self,
        actor: str,
        handle: EngineCalls,
        spec: EngineSpec | None,
        settings: Callable[[], ControllerSettings],
        on_change: Callable[[], None],
        adopted: bool = False,
    ) -> None:
        """`spec` is None for an adopted engine of another configuration: it is asked for its own.

        `on_change` is called when the engine's state has changed.
        """
        self.actor = actor
        self.name = engine_of(actor)
        self.handle = handle
        self.spec = spec
        self.plan: Plan | None = None
        self.news = asyncio.Event()
        """Set when its plan has changed, so that the next directive goes out at once."""
        self.superseded = False
        """Whether it follows a newer controller."""
        self._settings = settings
        self._on_change = on_change
        self._health = EngineHealth.found() if adopted else EngineHealth.created()
        self._began = time.monotonic()
        self._serving_since: float | None = None
        self._draining_since: float | None = None
        self._facts: ServingFacts | None = None
        self._report: EngineReport | None = None
        self._reported_at: float | None = None
        self._in_force_s: float | None = None
        self._window = ReportWindow()
        self._health_check: asyncio.Task[None] | None = None

    # -- what is known of it --

    @property
    def health(self) -> EngineHealth:
        return self._health

    @health.setter
    def health(self, after: EngineHealth) -> None:
        before, self._health = self._health, after
        if (before.state, before.reason) != (after.state, after.reason):
            self._on_change()

    @property
    def state(self) -> EngineState:
        return self._health.state

    @property
    def lost(self) -> str:
        """Why it must be replaced; empty if it need not be."""
        return self._health.reason if self._health.action(self._settings()) == "replace it" else ""

    @property
    def served_s(self) -> float:
        """How long it has served, in seconds."""
        return 0.0 if self._serving_since is None else time.monotonic() - self._serving_since

    @property
    def unplaced_s(self) -> float:
        """Seconds since it was created or adopted, while it has not answered; 0 once it has, as it is then on a node."""
        return 0.0 if self._health.answered else time.monotonic() - self._began

    @property
    def reporting(self) -> ReportingEngine | None:
        """What a policy reads; None while it cannot decide for this engine."""
        if self._facts is None or self._report is None or self.state not in ("serving", "draining"):
            return None
        return ReportingEngine(self._facts, self._report)

    def living(self, wanted: EngineSpec | None, served_model_name: str) -> Living:
        """What `reconcile` reads."""
        return Living(
            actor=self.actor,
            engine=self.name,
            state=self.state if self._health.known else None,
            current=wanted is not None and wanted.names(self.actor),
            served=self._health.served,
            serves_model=self.spec is None or self.spec.served_model_name == served_model_name,
            lost=self.lost,
            drained=self._drained(),
            age_s=time.monotonic() - self._began,
        )

    def status(self) -> EngineStatus:
        now, reported = time.monotonic(), self._report is not None
        return EngineStatus(
            name=self.name,
            actor=self.actor,
            state=self.state,
            detail=self._health.reason,
            gpus=None if self.spec is None else self.spec.num_gpus,
            accept_length=self._window.accept_length() if reported else None,
            goodput=self._window.goodput() if reported else None,
            acceptance=self._window.acceptance() if reported else (),
            in_force_s=self._in_force_s,
            facts=self._facts,
            report_age_s=now - self._reported_at if self._reported_at else None,
            report=self._report,
        )

    # -- draining --

    def drain(self, why: str) -> None:
        """Give it no more requests. It is drained once the running ones have ended, or at the latest after its `drain_s`."""
        _LOG.warning("draining engine %s: %s", self.actor, why)
        self._draining_since = time.monotonic()
        self.health = self._health.drains(why)

    def _drained(self) -> bool:
        if self._draining_since is None or self.spec is None:
            return False
        for_s = time.monotonic() - self._draining_since
        idle = self._report is not None and not self._report.load.running + self._report.load.waiting
        return for_s >= max(SETTLE_S, self.spec.drain_s) or (idle and for_s >= SETTLE_S)

    # -- calls --

    async def follow(self, directive: Callable[[EngineLink], Directive]) -> None:
        """Send a directive at every tick and keep the report, until the engine is lost. `directive` reads the engine's spec."""
        while not self._health.lost:
            self.news.clear()
            if self.spec is None:
                await self._greet()
            else:
                await self._exchange(directive(self))
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.news.wait(), self._settings().tick_s)

    def pass_time(self, seconds: float) -> None:
        """Let time count against the engine, and check its health if that is due."""
        self.health = self._health.time_passed(seconds, self._settings())
        if self._health.action(self._settings()) == "check its health" and self._health_check is None:
            self._health_check = asyncio.create_task(self._check_health())

    def close(self) -> None:
        if self._health_check is not None:
            self._health_check.cancel()

    async def _greet(self) -> None:
        """Ask for the engine's hello: what never changes."""
        hello = await self._answer(self.handle.hello.remote())
        if hello is not None:
            self.spec, self._facts = hello.spec, hello.facts

    async def _exchange(self, directive: Directive) -> None:
        sent = time.monotonic()
        answer = await self._answer(self.handle.exchange.remote(directive))
        took_s = time.monotonic() - sent
        if isinstance(answer, NotServing):
            self._report = None
            failed = answer.state == "failed"
            self.health = self._health.gave_up(answer.detail) if failed else self._health.starts(answer.detail)
        elif answer is not None:
            if self._facts is None:
                await self._greet()
            if self._facts is not None:
                self._keep(answer, directive, took_s)

    def _keep(self, report: EngineReport, directive: Directive, took_s: float) -> None:
        now, before = time.monotonic(), self._report
        self.superseded = report.applied.incarnation > directive.incarnation
        if before is None or before.applied.table != directive.table:
            self._in_force_s = took_s
        if self._serving_since is None:
            self._serving_since = now
        self._report, self._reported_at = report, now
        self._window.add(now, report)
        self.health = self._health.reported(new_tokens=before is None or before.tokens != report.tokens)

    async def _check_health(self) -> None:
        try:
            await self.handle.check_health.remote()
            self.health = self._health.health_check(passed=True)
        except RayError as error:
            _LOG.warning("engine %s failed its health check: %s", self.actor, _first_line(error))
            self.health = self._health.health_check(passed=False)
            await asyncio.sleep(CHECK_AGAIN_S)
        finally:
            self._health_check = None

    async def _answer(self, call: Awaitable[Answer]) -> Answer | None:
        """Return the engine's answer, or None if there will be none. A late answer is waited for."""
        answer = asyncio.ensure_future(call)
        deadline_s = self._settings().deadline_s
        try:
            done, _ = await asyncio.wait([answer], timeout=deadline_s)
            if not done:
                self.health = self._health.late(deadline_s)
            return await answer
        except ActorDiedError as error:
            self.health = self._health.gone(f"its actor died: {_first_line(error)}")
        except ActorUnavailableError as error:
            self.health = self._health.unreachable(f"its actor cannot be reached: {_first_line(error)}")
        except RayError as error:
            self.health = self._health.unreachable(_first_line(error))
            _LOG.exception("engine %s did not answer a call", self.actor)
        finally:
            answer.cancel()
        return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
