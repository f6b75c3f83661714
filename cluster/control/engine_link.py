"""What the controller knows about one engine, and how it learns it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from cluster.control.faults import SignsOfLife
from cluster.control.reconcile import Living
from cluster.control.report_window import ReportWindow
from cluster.messages.directive import Directive
from cluster.messages.report import EngineReport, NotServing
from cluster.messages.settings import ControllerSettings
from cluster.messages.spec import EngineSpec, engine_of
from cluster.messages.status import EngineState, EngineStatus
from cluster.policy.plan import Plan

_LOG = logging.getLogger(__name__)

SETTLE_S = 1.0  # a draining engine may get requests from snapshots this old


class EngineLink:
    """One engine actor: exchanges directives for reports, and watches for signs of life."""

    def __init__(self, actor: str, handle: Any, spec: EngineSpec | None, settings: Callable[[], ControllerSettings]) -> None:
        """`spec` is None for an adopted engine of another configuration: it is asked for its own."""
        self.actor = actor
        self.name = engine_of(actor)
        self.handle = handle
        self.spec = spec
        self.plan: Plan | None = None
        self.report: EngineReport | None = None
        self.news = asyncio.Event()
        """Set when its plan changed, so that it need not wait for its next tick."""
        self.lost = ""
        """Why it is of no more use."""
        self.superseded = False
        """Whether it follows a newer controller."""
        self._settings = settings
        self._state: EngineState = "starting"
        self._detail = "its actor is being created"
        self._adopted = False
        self._began = time.monotonic()
        self._heard = False
        self._serving_since: float | None = None
        self._draining_since: float | None = None
        self._in_force_s: float | None = None
        self._reported_at: float | None = None
        self._window = ReportWindow()
        self._vitals = SignsOfLife()
        self._probe: asyncio.Task[None] | None = None

    @classmethod
    def adopt(cls, actor: str, handle: Any, spec: EngineSpec | None, settings: Callable[[], ControllerSettings]) -> EngineLink:
        """An engine that another controller created."""
        engine = cls(actor, handle, spec, settings)
        engine._adopted, engine._detail = True, "adopted; not heard of yet"
        return engine

    # -- state --

    @property
    def state(self) -> EngineState:
        return "draining" if self._draining_since is not None else self._state

    @property
    def served_s(self) -> float:
        """How long it has served, in seconds."""
        return 0.0 if self._serving_since is None else time.monotonic() - self._serving_since

    def living(self, wanted: EngineSpec | None, served_model_name: str) -> Living:
        """What there is to decide by."""
        known = self._heard or not self._adopted or self._state == "waiting"
        return Living(
            actor=self.actor,
            engine=self.name,
            state=self.state if known else None,
            current=wanted is not None and wanted.names(self.actor),
            served=self._serving_since is not None,
            serves_model=self.spec is None or self.spec.served_model_name == served_model_name,
            lost=self.lost,
            drained=self._drained(),
            age_s=time.monotonic() - self._began,
        )

    def drain(self, why: str) -> None:
        """Give it no more requests; it is drained when those that run have ended, or at the latest after its `drain_s`."""
        _LOG.warning("draining engine %s: %s", self.actor, why)
        self._draining_since, self._detail = time.monotonic(), why

    def _drained(self) -> bool:
        if self._draining_since is None or self.spec is None:
            return False
        for_s = time.monotonic() - self._draining_since
        idle = self.report is not None and not self.report.load.running + self.report.load.waiting
        return for_s >= max(SETTLE_S, self.spec.drain_s) or (idle and for_s >= SETTLE_S)

    def waits(self, shortage: str) -> None:
        """Take in why it has not been placed, if it has not."""
        if shortage:
            self._state, self._detail, self._vitals.silent_s = "waiting", shortage, 0.0
        elif self._state == "waiting":
            self._state, self._detail = "starting", "its actor is being created"

    @property
    def unplaced_s(self) -> float:
        """Seconds that it has given no sign of having been placed on a node; 0 if it has."""
        return 0.0 if self._heard else time.monotonic() - self._began

    def status(self) -> EngineStatus:
        now, reported = time.monotonic(), self.report is not None
        return EngineStatus(
            name=self.name,
            actor=self.actor,
            state=self.state,
            detail=self._detail,
            gpus=None if self.spec is None else self.spec.num_gpus,
            accept_length=self._window.accept_length() if reported else None,
            goodput=self._window.goodput() if reported else None,
            acceptance=self._window.acceptance() if reported else (),
            in_force_s=self._in_force_s,
            report_age_s=now - self._reported_at if self._reported_at else None,
            report=self.report,
        )

    # -- signs of life --

    def watch(self, passed_s: float) -> None:
        """Judge whether it hangs. `passed_s` is the time since the last call, without what the controller itself lost: one
        that was stopped for a while must not blame the engines."""
        vitals, settings = self._vitals, self._settings()
        if self._heard or (self._adopted and self._state != "waiting"):
            vitals.silent_s += passed_s
        if self._serving_since is not None:
            vitals.lifeless_s, vitals.starting_s = vitals.lifeless_s + passed_s, 0.0
        else:
            vitals.starting_s = 0.0 if self._state == "waiting" else vitals.starting_s + passed_s
        if why := vitals.verdict(settings, self._detail):
            self._lose(why)
        elif vitals.wants_probe(settings) and self._probe is None:
            self._probe = asyncio.create_task(self._ask_for_a_token())

    async def _ask_for_a_token(self) -> None:
        try:
            await self.handle.probe.remote()
            self._vitals.lifeless_s = 0.0
        except RayError as error:
            _LOG.warning("engine %s failed its probe: %s", self.actor, _first_line(error))
            await asyncio.sleep(1.0)
        finally:
            self._probe = None

    def _lose(self, why: str) -> None:
        self.lost, self._state, self._detail = why, "failed", why

    # -- exchange --

    async def follow(self, directive: Callable[[EngineLink], Directive]) -> None:
        """Send a directive at every tick, and take the answer in, until the engine is lost."""
        while not self.lost:
            self.news.clear()
            if self.spec is None:
                self.spec = await self._answer(self.handle.describe.remote())
            else:
                sent, tick = time.monotonic(), directive(self)
                answer = await self._answer(self.handle.exchange.remote(tick))
                if answer is not None:
                    self._take(answer, tick, time.monotonic() - sent)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.news.wait(), self._settings().tick_s)

    def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()

    async def _answer(self, call: Any) -> Any:
        """The engine's answer; None if there will be none. An engine that takes too long is marked, and waited for."""
        answer: asyncio.Future[Any] = asyncio.ensure_future(call)
        deadline_s = self._settings().deadline_s
        try:
            done, _ = await asyncio.wait([answer], timeout=deadline_s)
            if not done and self._state == "serving":
                self._set("unhealthy", f"no answer within {deadline_s:g} s")
            return await answer
        except ActorDiedError as error:
            self._lose(f"its actor died: {_first_line(error)}")
        except ActorUnavailableError as error:
            self._set("unhealthy", f"its actor cannot be reached: {_first_line(error)}")
        except RayError as error:
            self._set("unhealthy", _first_line(error))
            _LOG.exception("engine %s did not take its directive", self.actor)
        finally:
            answer.cancel()
        return None

    def _take(self, answer: EngineReport | NotServing, directive: Directive, took_s: float) -> None:
        self._heard, self._vitals.silent_s = True, 0.0
        if isinstance(answer, NotServing):
            self.report = None
            if answer.state == "failed":
                self._lose(answer.detail)
            else:
                self._set(answer.state, answer.detail)
            return
        now = time.monotonic()
        self.superseded = answer.applied.incarnation > directive.incarnation
        if self.report is None or self.report.tokens != answer.tokens:
            self._vitals.lifeless_s = 0.0
        if self.report is None or self.report.applied.table != directive.table:
            self._in_force_s = took_s
        if self._serving_since is None:
            self._serving_since = now
        self._set("serving", "")
        self.report, self._reported_at = answer, now
        self._window.add(now, answer)

    def _set(self, state: EngineState, detail: str) -> None:
        """Follow what the engine says of itself; while it drains, why it does stays."""
        self._state = state
        if self._draining_since is None:
            self._detail = detail


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
