"""From a request's bytes to an engine's answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import ray
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from cluster.messages import errors
from cluster.messages.answer import EVENT_STREAM, Piece, ResponseHead
from cluster.messages.errors import ApiError
from cluster.messages.request_socket import Address
from cluster.routing.admission_queue import AdmissionQueue, QueueFullError
from cluster.routing.deadline import Deadline, DeadlineError
from cluster.routing.router import Router, Slot
from cluster.routing.snapshot import EngineSnapshot, Snapshot
from serve_app import error_responses, headers
from serve_app.bodies.requests import ROUTES, Request
from serve_app.error_responses import RequestError
from serve_app.ingress_settings import IngressSettings
from serve_app.relay import sse
from serve_app.relay.engine_request import EngineLostError, address_of, ask

_LOG = logging.getLogger(__name__)

SYNC_EVERY_S = 0.2  # between two snapshots
NO_CONTROLLER = (RayError, RayServeException)
"""What a call to the controller raises where there is none. Serve's own errors are none of Ray's."""


class Metrics(Protocol):
    """Takes requests in flight by engine and those that wait."""

    def observe(self, in_flight: Mapping[str, int], waiting: int) -> None: ...


class Relay:
    """Keeps a snapshot of the fleet and sends each request to one of its engines."""

    def __init__(self, controller: Any, metrics: Metrics) -> None:
        """`controller` is the handle of the controller's deployment; `metrics` is told what is in hand."""
        self._controller = controller
        self._metrics = metrics
        self._settings = IngressSettings()
        self._router = Router()
        self._line: AdmissionQueue[Slot] = AdmissionQueue()
        self._fleet: Snapshot | None = None
        self._addresses: dict[str, Address] = {}

    def configure(self, settings: IngressSettings) -> None:
        """Follow new settings, from the next request on."""
        self._settings = settings

    async def keep_in_sync(self) -> None:
        """Fetch snapshots for ever. While there is no controller, the last one stays in use."""
        while True:
            asked_at = time.monotonic()
            try:
                self._take(await self._controller.snapshot.remote(), asked_at)
            except NO_CONTROLLER as error:
                _LOG.warning("no snapshot from the controller: %s", error)
            self._metrics.observe(self._router.in_flight, len(self._line))
            await asyncio.sleep(SYNC_EVERY_S)

    def _take(self, fleet: Snapshot, asked_at: float) -> None:
        self._fleet = fleet
        self._router.observe(fleet.serving, asked_at)
        known = {engine.actor for engine in fleet.engines}
        self._addresses = {actor: address for actor, address in self._addresses.items() if actor in known}
        self._line.advance()

    @property
    def fleet(self) -> Snapshot:
        """The last snapshot.

        Raises:
            RequestError: before the first one.
        """
        if self._fleet is None:
            raise RequestError(errors.no_engine("the fleet is starting: the controller has not been heard of yet"))
        return self._fleet

    async def answer(
        self, route: str, body: bytes, session: str | None = None, timeout_s: float | None = None
    ) -> tuple[ResponseHead, AsyncGenerator[bytes, None]]:
        """Send an OpenAI request to an engine. Returns once the head of its answer is known.

        Requests of one `session` go to the same engine. After `timeout_s` the request ends, whatever it is at.

        Raises:
            RequestError: if it is refused, or no engine can take it.
        """
        request = error_responses.parse(ROUTES[route], body)
        known = self.fleet.served_model_name
        if request.model not in (None, known):
            raise RequestError(errors.model_not_found(request.model, known))
        settings = self._settings
        deadline = Deadline(min(timeout_s or settings.default_timeout_s, settings.max_timeout_s))
        try:
            head, pieces = await self._first_answer(request, route, body, session, deadline)
        except DeadlineError:
            raise RequestError(self._too_late(deadline)) from None
        except BaseException:
            deadline.cancel()
            raise
        return head, self._body(head, pieces, deadline)

    async def _first_answer(
        self, request: Request, route: str, body: bytes, session: str | None, deadline: Deadline
    ) -> tuple[ResponseHead, AsyncGenerator[Piece, None]]:
        """The answer of the first engine, or of a second one where the first was lost before it said anything."""
        failed: dict[str, ApiError] = {}
        while True:
            place = await deadline.wait(self._place(request, session, failed))
            pieces = self._pieces(place, route, body, deadline)
            try:
                head = await anext(pieces)
            except EngineLostError as error:
                if failed:
                    raise RequestError(error.error) from error
                failed[place.engine.actor] = error.error
                continue
            if isinstance(head, ResponseHead):
                return head, pieces
            await pieces.aclose()
            assert isinstance(head, ApiError)
            raise RequestError(head)

    async def _place(self, request: Request, session: str | None, failed: dict[str, ApiError]) -> Slot:
        settings = self._settings
        affinity = _affinity(request, session, settings.affinity_chars)

        def take() -> Slot | None:
            return self._router.take(request.samples, affinity, failed, settings.max_in_flight)

        try:
            return await self._line.get(take, self._router.leave, settings.queue_length, settings.queue_timeout_s)
        except QueueFullError:
            if failed:
                error = next(iter(failed.values()))
            elif self.fleet.serving:
                error = errors.fleet_full(settings.queue_timeout_s)
            else:
                states = "; ".join(f"{e.name} is {e.state} ({e.detail})" for e in self.fleet.engines)
                error = errors.no_engine(f"no engine is serving: {states}")
            raise RequestError(error) from None

    async def _pieces(self, place: Slot, route: str, body: bytes, deadline: Deadline) -> AsyncGenerator[Piece, None]:
        try:
            address = await deadline.wait(self._address(place.engine))
            async with aclosing(ask(address, place.engine.name, route, body, deadline)) as pieces:
                async for piece in pieces:
                    yield piece
        except EngineLostError:
            self._addresses.pop(place.engine.actor, None)
            raise
        finally:
            self._router.leave(place)
            self._line.advance()

    async def _body(
        self, head: ResponseHead, pieces: AsyncGenerator[Piece, None], deadline: Deadline
    ) -> AsyncGenerator[bytes, None]:
        """The body of an answer.

        Raises:
            RequestError: if it breaks off. A stream is whole only if it ends with `[DONE]`.
        """
        last = b""
        try:
            async for piece in pieces:
                if isinstance(piece, ApiError):
                    raise RequestError(piece)
                assert isinstance(piece, bytes)
                last = piece
                yield piece
        except EngineLostError as lost:
            raise RequestError(lost.error) from lost
        except DeadlineError:
            raise RequestError(self._too_late(deadline)) from None
        finally:
            deadline.cancel()
            await pieces.aclose()
        if head.media_type == EVENT_STREAM and not last.endswith(sse.DONE):
            raise RequestError(errors.engine_failed("the stream broke off"))

    def _too_late(self, deadline: Deadline) -> ApiError:
        most = self._settings.max_timeout_s
        advice = f"allow more by the header {headers.TIMEOUT}" if deadline.seconds < most else "no request may take longer"
        return errors.deadline_exceeded(deadline.seconds, advice)

    async def _address(self, engine: EngineSnapshot) -> Address:
        if engine.actor not in self._addresses:
            try:
                actor = await asyncio.to_thread(ray.get_actor, engine.actor, self.fleet.namespace)
            except ValueError as error:
                raise EngineLostError(errors.engine_lost(engine.name)) from error
            self._addresses[engine.actor] = await address_of(actor, engine.name)
        return self._addresses[engine.actor]


def _affinity(request: Request, session: str | None, chars: int) -> bytes | None:
    """What the request has in common with others whose prefixes an engine may have cached."""
    if named := session or request.session:
        return b"session:" + named.encode()
    beginning = request.beginning(chars)
    return None if beginning is None else b"prefix:" + beginning.encode()
