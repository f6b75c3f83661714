"""From a request's bytes to an engine's answer."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from cluster.protocol import ApiError, ResponseHead
from cluster.router import Router
from cluster.status import EngineStatus, FleetStatus
from serve_app.errors import RequestError

_LOG = logging.getLogger(__name__)


class Gateway:
    """Keeps a snapshot of the fleet and sends each request to one of its engines."""

    def __init__(self, controller: Any, sync_every_s: float = 0.2) -> None:
        """`controller` is the handle of the controller's deployment."""
        self._controller = controller
        self._sync_every_s = sync_every_s
        self._router = Router()
        self._fleet: FleetStatus | None = None
        self._handles: dict[str, Any] = {}

    async def keep_in_sync(self) -> None:
        """Fetch snapshots for ever. While there is no controller, the last one stays in use."""
        while True:
            try:
                self._fleet = await self._controller.status.remote()
            except RayError as error:
                _LOG.warning("no snapshot from the controller: %s", error)
            await asyncio.sleep(self._sync_every_s)

    @property
    def fleet(self) -> FleetStatus:
        """The last snapshot.

        Raises:
            RequestError: before the first one.
        """
        if self._fleet is None:
            raise _unavailable("the fleet is starting: the controller has not been heard of yet")
        return self._fleet

    async def answer(self, route: str, body: bytes) -> tuple[ResponseHead, AsyncIterator[bytes]]:
        """Send an OpenAI request to an engine. Returns once the head of its answer is known.

        Raises:
            RequestError: if it is refused, or no engine can take it.
        """
        self._check(body)
        serving = self.fleet.serving
        if not serving:
            states = "; ".join(f"{e.name} is {e.state} ({e.detail})" for e in self.fleet.engines)
            raise _unavailable(f"no engine is serving: {states}")
        pieces = self._pieces(self._router.pick(serving), route, body)
        head = await anext(pieces)
        if isinstance(head, ApiError):
            await pieces.aclose()
            raise RequestError(head)
        assert isinstance(head, ResponseHead)
        return head, self._body(head, pieces)

    def _check(self, body: bytes) -> None:
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(ApiError(status=400, message=f"the body is not JSON: {error}")) from error
        if not isinstance(request, dict):
            raise RequestError(ApiError(status=400, message=f"the body must be a JSON object, not {type(request).__name__}"))
        known = self.fleet.served_model_name
        if request.get("model", known) != known:
            message = f"model: there is no {request['model']!r} here; this fleet serves {known!r}"
            raise RequestError(ApiError(status=404, message=message, param="model", code="model_not_found"))

    async def _pieces(self, engine: EngineStatus, route: str, body: bytes) -> AsyncGenerator[Any, None]:
        """Head and body from one engine. Whoever stops reading early, and for whatever reason, ends the request there."""
        handle = await self._handle(engine.actor)
        rid = uuid.uuid4().hex
        ended = False
        with self._router.sent_to(engine.actor):
            try:
                async for piece in handle.respond.options(num_returns="streaming").remote(route, body, rid):
                    yield await piece
                ended = True
            except RayActorError as error:
                ended = True
                self._handles.pop(engine.actor, None)
                _LOG.warning("engine %s was lost during a request: %s", engine.name, error)
                message = f"engine {engine.name} was lost while it answered; send the request again"
                yield ApiError(status=502, message=message, type="server_error", code="engine_lost")
            finally:
                if not ended:
                    handle.abort.remote(rid)

    async def _body(self, head: ResponseHead, pieces: AsyncGenerator[Any, None]) -> AsyncIterator[bytes]:
        """The body. A plain answer that breaks off raises; a stream tells its client by an event."""
        try:
            async for piece in pieces:
                if not isinstance(piece, ApiError):
                    yield piece
                elif head.media_type == "text/event-stream":
                    yield f"data: {json.dumps(piece.body())}\n\n".encode()
                else:
                    raise RequestError(piece)
        finally:
            await pieces.aclose()

    async def _handle(self, actor: str) -> Any:
        if actor not in self._handles:
            try:
                self._handles[actor] = await asyncio.to_thread(ray.get_actor, actor, self.fleet.namespace)
            except ValueError as error:
                raise _unavailable(f"engine {actor} is gone; send the request again") from error
        return self._handles[actor]


def _unavailable(message: str) -> RequestError:
    return RequestError(ApiError(status=503, message=message, type="server_error", code="no_engine"))
