"""The Ray actor around one engine."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable

import ray
import uvloop
from ray.exceptions import RayError
from ray.util import list_named_actors

from cluster.messages import errors
from cluster.messages.answer import Piece
from cluster.messages.directive import Directive
from cluster.messages.hello import EngineHello
from cluster.messages.report import EngineReport, NotServing
from cluster.messages.spec import EngineSpec
from workers import event_loops
from workers.directed_engine import DirectedEngine
from workers.lifetime import Lifetime, end_process_group, lead_a_process_group
from workers.request_server import RequestServer
from workers.sglang_patch import start_progress
from workers.warm_up import warm_up

_LOG = logging.getLogger(__name__)


@ray.remote(concurrency_groups={"control": 32}, max_restarts=0)
class EngineActor:
    """One engine. Control calls come in through Ray and hop to the loop of the engine's thread; requests come in there, by
    its door.

    The engine has a thread of its own because its scheduler processes ask to die with the *thread* that started them.
    """

    def __init__(self, spec: EngineSpec, controller: str) -> None:
        """Return at once; the engine starts in its thread. Until it serves, `exchange` says how far it is.

        `controller` is what the names of controllers' actors begin with.
        """
        self._spec = spec
        self._engine: DirectedEngine | None = None
        self._phase = ""
        self._failure = ""
        self._hello = EngineHello(spec=spec)
        self._host = ray.util.get_node_ip_address()
        self._loop = uvloop.new_event_loop()  # as SGLang's own server has
        self._lifetime = Lifetime(
            spec.orphan_after_s,
            spec.drain_s,
            controller_lives=lambda: _lives(controller),
            in_flight=lambda: self._engine.health.in_flight if self._engine else 0,
            end=end_process_group,
        )
        _ignore_sigquit()
        lead_a_process_group()
        threading.Thread(target=self._lifetime.run, name="lifetime", daemon=True).start()
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            engine = DirectedEngine(self._spec)
            watching = self._loop.create_task(engine.watch())
            self._loop.run_until_complete(self._prepare(engine, watching))
            address = self._loop.run_until_complete(RequestServer(self._answers(engine)).open(self._host))
            self._hello = EngineHello(spec=self._spec, facts=engine.serving_facts(), address=address)
        except (Exception, SystemExit) as error:
            # The actor stays to say what it was; the controller removes it, and tries again later.
            _LOG.exception("engine %s failed to start", self._spec.name)
            self._failure = str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"
            return
        self._engine = engine
        try:
            self._loop.run_until_complete(watching)
        except RuntimeError:
            _LOG.exception("engine %s failed", self._spec.name)
        end_process_group()

    async def _prepare(self, engine: DirectedEngine, watching: asyncio.Task[None]) -> None:
        """What is left to do when all processes are up. Fails too if one of them ends meanwhile."""
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "proving that the patch is in force": engine.prove_patch,
            "warming up: compiling kernels that sampling needs": lambda: warm_up(engine),
            "measuring step times": engine.profile,
        }
        for self._phase, step in steps.items():
            doing = asyncio.ensure_future(step())
            await asyncio.wait((doing, watching), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            await doing

    @ray.method(concurrency_group="control")
    async def hello(self) -> EngineHello:
        """What never changes about the engine; of one that does not serve yet, its spec alone."""
        return self._hello

    @ray.method(concurrency_group="control")
    async def exchange(self, directive: Directive) -> EngineReport | NotServing:
        """Take a directive down and a report up."""
        self._lifetime.heard()
        engine = self._engine
        if engine is not None:
            return await event_loops.call(self._loop, lambda: engine.take(directive))
        if self._failure:
            return NotServing(engine=self._spec.name, state="failed", detail=self._failure)
        return NotServing(engine=self._spec.name, state="starting", detail=self._phase or start_progress.read())

    @ray.method(concurrency_group="control")
    async def check_health(self) -> None:
        """Return once the engine has shown that it generates tokens; an engine that hangs never does."""
        engine = self._engine
        if engine is not None:
            await event_loops.call(self._loop, engine.health.probe)

    def _answers(self, engine: DirectedEngine) -> Callable[[str, bytes], AsyncGenerator[Piece, None]]:
        """What answers a request: the engine, until it drains for lack of a controller."""

        def respond(route: str, body: bytes) -> AsyncGenerator[Piece, None]:
            return self._refuse() if self._lifetime.draining else engine.respond(route, body)

        return respond

    async def _refuse(self) -> AsyncGenerator[Piece, None]:
        yield errors.no_engine(f"engine {self._spec.name} has no controller and ends")


def _lives(controller: str) -> bool:
    """Whether a controller lives, as far as Ray can tell: while it cannot, no engine is to end for that."""
    try:
        return any(actor["name"].startswith(controller) for actor in list_named_actors(all_namespaces=True))
    except RayError:
        _LOG.exception("cannot tell whether a controller lives")
        return True


def _ignore_sigquit() -> None:
    """SGLang sends SIGQUIT when one of its processes fails, which would end the actor without a word about why.

    A failure at start raises in the engine's thread anyway, and `DirectedEngine.watch` sees a later one. Python sets
    signal handlers only in the main thread, where no actor's code runs, hence libc.
    """
    ctypes.CDLL(None).signal(signal.SIGQUIT, ctypes.c_void_p(int(signal.SIG_IGN)))
