"""The controller: gathers every engine's report and sends every engine its directive, tick by tick."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

from ray.exceptions import RayError

from cluster.control.backoff import Backoff
from cluster.control.engine_link import EngineLink
from cluster.control.fleet import Fleet
from cluster.control.metrics import FleetMetrics
from cluster.control.published import Published
from cluster.control.reconcile import reconcile
from cluster.messages.directive import Directive
from cluster.messages.settings import ControllerSettings, Mode, PolicySettings
from cluster.messages.spec import EngineSpec, engine_of
from cluster.messages.status import EngineStatus, FleetStatus
from cluster.policy.plan import FixedDepthPolicy, Plan, Policy
from cluster.routing.snapshot import PackedSnapshot

_LOG = logging.getLogger(__name__)

RECONCILE_EVERY_S = 0.5
PLACED_WITHIN_S = 10.0  # an actor that has no node after this long may be waiting for one, not for its process to start


class MeasuredPolicy(Policy, Protocol):
    """A policy that learns, and keeps what it has learnt when its settings change."""

    def configure(self, settings: PolicySettings) -> None: ...


class Controller:
    """Decides for the whole fleet at every tick, and makes the living engines match the wanted ones.

    Each engine has a loop of its own for its exchanges, so that a dead or hung one delays no other.
    """

    def __init__(self, fleet: Fleet, served_model_name: str, measured: MeasuredPolicy) -> None:
        """`measured` is the policy of mode auto where no table is configured."""
        self.incarnation = time.time_ns()
        self._fleet = fleet
        self._served_model_name = served_model_name
        self._measured = measured
        self._settings = ControllerSettings()
        self._policy: Policy = measured
        self._refused = ""
        self._wanted: Mapping[str, EngineSpec] = {}
        self._sequence = 0
        self._engines: dict[str, EngineLink] = {}  # by actor
        self._following: dict[str, asyncio.Task[None]] = {}  # by actor
        self._backoff: defaultdict[str, Backoff] = defaultdict(Backoff)  # by engine
        self._looked_at = time.monotonic()
        self._metrics = FleetMetrics()
        self._published = Published(self._build_status)

    def configure(self, settings: ControllerSettings) -> None:
        """Put new settings in force at once.

        Raises:
            ValueError: if they name a group of engines that does not exist. The previous settings then stay in force.
        """
        self._put_in_force(settings)
        self._refused = ""

    def refuse(self, why: str) -> None:
        """Let the status say why new settings were not put in force."""
        self._refused = why
        self._published.expire()

    def set_mode(self, mode: Mode) -> None:
        """Change the mode alone. It holds until the next `configure` or the controller's end."""
        self._put_in_force(self._settings.model_copy(update={"mode": mode}))

    async def run(self) -> None:
        """Keep the fleet whole and directed, for ever. An exception from here is a bug."""
        loops = [asyncio.create_task(self._decide_for_ever()), asyncio.create_task(self._reconcile_for_ever())]
        try:
            await asyncio.gather(*loops)
        finally:
            for task in (*loops, *self._following.values()):
                task.cancel()

    def tick(self) -> None:
        """Decide for every engine, and publish the status and metrics of all."""
        self._decide()
        for engine in self.status().engines:
            self._metrics.observe(engine)

    def status(self) -> FleetStatus:
        """The fleet's status as of the last tick or change."""
        return self._published.status()

    def snapshot(self) -> PackedSnapshot:
        """The part of the status that ingresses route by."""
        return self._published.snapshot()

    # -- directives --

    def _put_in_force(self, settings: ControllerSettings) -> None:
        self._wanted = self._fleet.wanted(settings.engines)
        self._settings = settings
        self._measured.configure(settings.policy)
        table = settings.table()
        self._policy = self._measured if table is None else FixedDepthPolicy(table, _why_fixed(settings))
        self._decide()

    async def _decide_for_ever(self) -> None:
        while True:
            self.tick()
            await asyncio.sleep(self._settings.tick_s)

    def _decide(self) -> None:
        self._published.expire()
        reporting = {actor: known for actor, engine in self._engines.items() if (known := engine.reporting) is not None}
        for actor, plan in self._policy.decide(reporting, time.monotonic()).items():
            engine = self._engines[actor]
            if engine.plan is None or engine.plan.table != plan.table:
                engine.news.set()
            engine.plan = plan

    def _directive(self, engine: EngineLink) -> Directive:
        """An engine that has not reported yet gets its own fallback: the policy does not know its depths before."""
        assert engine.spec is not None
        plan = engine.plan or Plan(engine.spec.fallback, "no report yet: the engine's own table")
        self._sequence += 1
        return Directive(
            incarnation=self.incarnation,
            sequence=self._sequence,
            table=plan.table,
            lease_s=self._settings.lease_s,
            reason=plan.reason,
        )

    # -- engines --

    async def _reconcile_for_ever(self) -> None:
        while True:
            try:
                await self._reconcile()
            except RayError:
                _LOG.exception("Ray does not answer; trying again in %g s", RECONCILE_EVERY_S)
            await asyncio.sleep(RECONCILE_EVERY_S)

    async def _reconcile(self) -> None:
        """Compare the actors that live with the engines that are wanted, and act. Nothing is remembered between two calls."""
        await self._look()
        if any(engine.superseded for engine in self._engines.values()):
            return  # Serve has started the next controller and ends this one; both would fight over the engines
        now = time.monotonic()
        living = [e.living(self._wanted.get(e.name), self._served_model_name) for e in self._engines.values()]
        waiting = {name for name, backoff in self._backoff.items() if now < backoff.until}
        actions = reconcile(self._wanted, living, waiting=waiting, surge=self._settings.surge)
        for actor, why in actions.drain.items():
            self._engines[actor].drain(why)
        for actor, why in actions.remove.items():
            await self._remove(actor, why)
        for spec in actions.create:
            actor = spec.new_actor_name()
            handle = await asyncio.to_thread(self._fleet.create, actor, spec)
            self._add(EngineLink(actor, handle, spec, self._current_settings, self._published.expire))

    async def _look(self) -> None:
        """Adopt actors that other controllers created, and update the health of known ones."""
        living = await asyncio.to_thread(self._fleet.living)
        for actor in sorted(living - self._engines.keys()):
            if (handle := await asyncio.to_thread(self._fleet.find, actor)) is not None:
                wanted = self._wanted.get(engine_of(actor))
                spec = wanted if wanted is not None and wanted.names(actor) else None
                self._add(EngineLink(actor, handle, spec, self._current_settings, self._published.expire, adopted=True))
        # A controller that was stopped for a while must not mistake its own sleep for the engines' silence.
        now = time.monotonic()
        passed_s = min(now - self._looked_at, 2 * RECONCILE_EVERY_S)
        self._looked_at = now
        for actor, engine in self._engines.items():
            if self._following[actor].done():
                self._following[actor].result()  # raises if its loop failed, which is a bug
            if actor not in living:
                engine.health = engine.health.gone("its actor is gone")
            if engine.unplaced_s > PLACED_WITHIN_S and engine.spec is not None:
                shortage = await asyncio.to_thread(self._fleet.shortage, engine.handle, engine.spec.num_gpus)
                engine.health = engine.health.unplaced(shortage) if shortage else engine.health.placed()
            engine.pass_time(passed_s)

    def _current_settings(self) -> ControllerSettings:
        return self._settings

    def _add(self, engine: EngineLink) -> None:
        self._engines[engine.actor] = engine
        self._following[engine.actor] = asyncio.create_task(engine.follow(self._directive))
        self._published.expire()

    async def _remove(self, actor: str, why: str) -> None:
        engine = self._engines.pop(actor)
        self._following.pop(actor).cancel()
        engine.close()
        if engine.lost:
            self._backoff[engine.name].failed(engine.lost, engine.served_s, time.monotonic())
        self._published.expire()
        await asyncio.to_thread(self._fleet.kill, actor, why)

    # -- what is published --

    def _build_status(self) -> FleetStatus:
        engines = [engine.status() for engine in self._engines.values()]
        present = {engine.name for engine in engines}
        absent = [self._absent(spec) for name, spec in self._wanted.items() if name not in present]
        order = {name: place for place, name in enumerate(self._wanted)}
        return FleetStatus(
            mode=self._settings.mode,
            controller=self.incarnation,
            namespace=self._fleet.namespace,
            served_model_name=self._served_model_name,
            refused=self._refused,
            engines=tuple(sorted((*engines, *absent), key=lambda e: order.get(e.name, len(order)))),
        )

    def _absent(self, spec: EngineSpec) -> EngineStatus:
        """A wanted engine that has no actor."""
        failed = self._backoff.get(spec.name)
        return EngineStatus(
            name=spec.name,
            actor="",
            state="failed" if failed else "starting",
            detail=failed.describe(time.monotonic()) if failed else "its actor is about to be created",
            gpus=spec.num_gpus,
        )


def _why_fixed(settings: ControllerSettings) -> str:
    if settings.mode == "auto":
        return "mode auto: the table of user_config"
    return f"mode {settings.mode}"
