"""The Ray actor around one engine."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator

import ray

from cluster.protocol import ApiError, Directive, EngineReport, NotServing, ResponseHead
from cluster.spec import EngineSpec
from workers import bridge
from workers.engine import DirectedEngine

_LOG = logging.getLogger(__name__)


@ray.remote(concurrency_groups={"control": 32, "generation": 4096}, max_restarts=3)
class EngineActor:
    """One engine. Control calls and requests come in through separate concurrency groups, each with its own event loop,
    so that neither queues behind the other; both hop to the loop of the engine's thread.

    The engine has a thread of its own because its scheduler processes ask to die with the *thread* that started them.
    """

    def __init__(self, spec: EngineSpec) -> None:
        """Return at once; the engine starts in its thread. Until it serves, `exchange` says how far it is."""
        self._spec = spec
        self._engine: DirectedEngine | None = None
        self._state = NotServing(engine=spec.actor_name, state="starting", detail="loading the model")
        self._heard_at = time.monotonic()
        self._loop = asyncio.new_event_loop()
        _ignore_sigquit()
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            engine = DirectedEngine(self._spec)
            self._loop.run_until_complete(engine.prove_patch())
            self._loop.run_until_complete(engine.profile())
        except Exception as error:
            _LOG.exception("engine %s failed to start", self._spec.actor_name)
            self._state = NotServing(engine=self._spec.actor_name, state="failed", detail=f"{type(error).__name__}: {error}")
            self._loop.run_until_complete(self._show_failure_until_orphaned())
        else:
            self._engine = engine
            self._loop.run_until_complete(self._serve_until_orphaned(engine))
        _LOG.warning("engine %s ends itself: no controller for %g s", self._spec.actor_name, self._spec.orphan_after_s)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    async def _show_failure_until_orphaned(self) -> None:
        """A failure at start would only repeat itself, so the engine stays to say what it was."""
        while time.monotonic() < self._heard_at + self._spec.orphan_after_s:
            await asyncio.sleep(0.1)

    async def _serve_until_orphaned(self, engine: DirectedEngine) -> None:
        try:
            await engine.watch()
        except RuntimeError:
            _LOG.exception("engine %s failed; Ray restarts it", self._spec.actor_name)
            os._exit(1)
        self._state = NotServing(engine=self._spec.actor_name, state="draining", detail="no controller; ending")
        self._engine = None
        await engine.drained()

    @ray.method(concurrency_group="control")
    async def exchange(self, directive: Directive) -> EngineReport | NotServing:
        """Take a directive down and a report up."""
        self._heard_at = time.monotonic()
        engine = self._engine
        if engine is None:
            return self._state
        return await bridge.call(self._loop, lambda: engine.take(directive))

    @ray.method(concurrency_group="control")
    async def abort(self, rid: str) -> None:
        """End a request whose client went away; nothing if it has ended."""
        engine = self._engine
        if engine is not None:
            self._loop.call_soon_threadsafe(engine.abort, rid)

    @ray.method(concurrency_group="generation")
    async def respond(self, route: str, body: bytes, rid: str) -> AsyncIterator[ResponseHead | ApiError | bytes]:
        """Answer an OpenAI request (`chat/completions` or `completions`): a head and then the body, or an error."""
        engine = self._engine
        if engine is None:
            yield ApiError(status=503, message=f"engine {self._spec.name} is {self._state.state}", type="server_error")
            return
        async for pieces in bridge.stream(self._loop, lambda: engine.respond(route, body, rid)):
            if not isinstance(pieces[0], bytes):
                yield pieces.pop(0)
            if pieces:
                yield b"".join(piece for piece in pieces if isinstance(piece, bytes))


def _ignore_sigquit() -> None:
    """SGLang sends SIGQUIT when one of its processes fails, which would end the actor without a word about why.

    A failure at start raises in the engine's thread anyway, and `DirectedEngine.watch` sees a later one. Python sets
    signal handlers only in the main thread, where no actor's code runs, hence libc.
    """
    ctypes.CDLL(None).signal(signal.SIGQUIT, ctypes.c_void_p(int(signal.SIG_IGN)))
