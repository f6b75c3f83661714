"""The Ray actor around one engine."""

from __future__ import annotations

import ctypes
import logging
import signal
import threading

import ray
from ray.exceptions import RayError
from ray.util import list_named_actors

from cluster.messages.directive import Directive
from cluster.messages.hello import EngineHello
from cluster.messages.report import EngineReport, NotServing
from cluster.messages.spec import EngineSpec
from workers.engine_thread import EngineThread
from workers.lifetime import Lifetime, end_process_group, lead_a_process_group
from workers.sglang_patch.engine import SGLangEngine

_LOG = logging.getLogger(__name__)


@ray.remote(concurrency_groups={"control": 32}, max_restarts=0)
class EngineActor:
    """One engine. Control calls come in through Ray and are passed on to the engine's thread; requests come in there, over
    the engine's own socket."""

    def __init__(self, spec: EngineSpec, controller: str) -> None:
        """Return at once; the engine starts in its thread. Until it serves, `exchange` says how far it is.

        `controller` is what the names of controllers' actors begin with.
        """
        _ignore_sigquit()
        lead_a_process_group()
        self._engine = EngineThread(spec, SGLangEngine(), ray.util.get_node_ip_address(), end_process_group)
        self._lifetime = Lifetime(spec.orphan_after_s, spec.drain_s, self._engine, lambda: _lives(controller), end_process_group)
        threading.Thread(target=self._lifetime.run, name="lifetime", daemon=True).start()

    @ray.method(concurrency_group="control")
    async def hello(self) -> EngineHello:
        """What never changes about the engine. Until it serves, this is its spec alone."""
        return self._engine.hello

    @ray.method(concurrency_group="control")
    async def exchange(self, directive: Directive) -> EngineReport | NotServing:
        """Accept a directive and answer with a report."""
        self._lifetime.heard()
        return await self._engine.exchange(directive)

    @ray.method(concurrency_group="control")
    async def check_health(self) -> None:
        """Return once the engine has shown that it generates tokens; an engine that hangs never does."""
        await self._engine.check_health()


def _lives(controller: str) -> bool:
    """Whether a controller lives. True while Ray cannot tell: no engine is to end for that."""
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
