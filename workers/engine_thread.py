"""The thread of one engine: starts it, prepares it, and answers requests, until it fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable

import uvloop

from cluster.messages import errors
from cluster.messages.answer import Piece
from cluster.messages.directive import Directive
from cluster.messages.hello import EngineHello
from cluster.messages.report import EngineReport, NotServing
from cluster.messages.spec import EngineSpec
from workers import event_loops, startup_profile
from workers.directed_engine import DirectedEngine
from workers.engine_face import EngineFace
from workers.request_server import RequestServer
from workers.warm_up import warm_up

_LOG = logging.getLogger(__name__)


class EngineThread:
    """Runs one engine in a thread and an event loop of its own; its methods are called from others.

    SGLang's scheduler processes ask to die with the *thread* that started them, so this one lives as long as the engine.
    """

    def __init__(self, spec: EngineSpec, face: EngineFace, host: str, end: Callable[[], None]) -> None:
        """`face` is an engine to start, `host` the address to listen on for requests. `end` is called in the thread when the
        engine has failed after it served."""
        self.hello = EngineHello(spec=spec)
        """What never changes about the engine. Until it serves, this is its spec alone."""
        self.draining = False
        """While true, it refuses new requests."""
        self._spec = spec
        self._face = face
        self._host = host
        self._end = end
        self._engine: DirectedEngine | None = None  # once it serves
        self._phase = ""
        self._failure = ""
        self._loop = uvloop.new_event_loop()  # as SGLang's own server has
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    @property
    def in_flight(self) -> int:
        """Clients' requests that are not answered to the end."""
        return self._face.in_flight if self._engine else 0

    async def exchange(self, directive: Directive) -> EngineReport | NotServing:
        """See `DirectedEngine.exchange`; before the engine serves, how far it is."""
        engine = self._engine
        if engine is not None:
            return await event_loops.call(self._loop, lambda: engine.exchange(directive))
        if self._failure:
            return NotServing(engine=self._spec.name, state="failed", detail=self._failure)
        return NotServing(engine=self._spec.name, state="starting", detail=self._phase or self._face.progress)

    async def check_health(self) -> None:
        """See `EngineFace.check_health`; returns at once while the engine does not serve."""
        if self._engine is not None:
            await event_loops.call(self._loop, self._face.check_health)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._face.start(self._spec, startup_profile.known(self._spec))
            engine = DirectedEngine(self._spec, self._face)
            watching = self._loop.create_task(engine.watch())
            self._loop.run_until_complete(self._prepare(engine, watching))
            address = self._loop.run_until_complete(RequestServer(self._respond).open(self._host))
            facts = self._loop.run_until_complete(engine.facts())
            self.hello = EngineHello(spec=self._spec, facts=facts, address=address)
        except (Exception, SystemExit) as error:
            # The thread ends; the actor stays to say why. The controller removes it, and tries again later.
            _LOG.exception("engine %s failed to start", self._spec.name)
            self._failure = str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"
            return
        self._engine = engine
        try:
            self._loop.run_until_complete(watching)
        except Exception:
            _LOG.exception("engine %s failed", self._spec.name)
        self._end()

    async def _prepare(self, engine: DirectedEngine, watching: asyncio.Task[None]) -> None:
        """What is left to do when all processes are up. Fails too if one of them ends meanwhile."""
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "proving that the patch is in force": engine.prove_patch,
            "warming up: compiling kernels that sampling needs": lambda: warm_up(engine),
            "measuring step times": lambda: startup_profile.settle(engine),
        }
        for self._phase, step in steps.items():
            doing = asyncio.ensure_future(step())
            await asyncio.wait((doing, watching), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            await doing

    def _respond(self, route: str, body: bytes) -> AsyncGenerator[Piece, None]:
        return self._refuse() if self.draining else self._face.respond(route, body)

    async def _refuse(self) -> AsyncGenerator[Piece, None]:
        yield errors.no_engine(f"engine {self._spec.name} has no controller and ends")
