"""Where engines take requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import ray
from ray.exceptions import RayError

from cluster.messages import errors
from cluster.messages.engine_calls import EngineCalls
from cluster.messages.request_socket import Address
from cluster.routing.snapshot import EngineSnapshot
from serve_app.relay.engine_request import EngineLostError


class Addresses:
    """Addresses of engines, each asked for once."""

    def __init__(self) -> None:
        self._known: dict[str, Address] = {}  # by name of the actor

    async def find(self, engine: EngineSnapshot, namespace: str) -> Address:
        """The address of an engine whose actor lives in the Ray namespace `namespace`.

        Raises:
            EngineLostError: if it takes no requests.
        """
        if engine.actor not in self._known:
            self._known[engine.actor] = await _ask(engine, namespace)
        return self._known[engine.actor]

    def forget(self, actor: str) -> None:
        """Ask again the next time."""
        self._known.pop(actor, None)

    def keep(self, actors: Collection[str]) -> None:
        """Forget all but these."""
        self._known = {actor: address for actor, address in self._known.items() if actor in actors}


async def _ask(engine: EngineSnapshot, namespace: str) -> Address:
    try:
        actor: EngineCalls = await asyncio.to_thread(ray.get_actor, engine.actor, namespace)
        address = (await actor.hello.remote()).address
    except (ValueError, RayError) as error:  # ValueError: there is no such actor
        raise EngineLostError(errors.engine_lost(engine.name)) from error
    if address is None:
        raise EngineLostError(errors.no_engine(f"engine {engine.name} takes no requests"))
    return address
