"""From a request's bytes to an engine's answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from cluster.messages import errors
from cluster.messages.answer import Piece, ResponseHead
from cluster.messages.errors import ApiError
from cluster.routing.deadline import Deadline, DeadlineError
from cluster.routing.routed_request import RoutedRequest
from cluster.routing.router import Slot
from serve_app import error_responses
from serve_app.bodies.routes import ROUTES
from serve_app.error_responses import RequestError
from serve_app.ingress_settings import IngressSettings
from serve_app.relay.body import read_body
from serve_app.relay.engine_request import EngineLostError, ask
from serve_app.relay.fleet_view import FleetView


class Relay:
    """Sends each request to one of the fleet's engines."""

    def __init__(self, fleet: FleetView) -> None:
        self._fleet = fleet
        self._settings = IngressSettings()

    def configure(self, settings: IngressSettings) -> None:
        """Use new settings, from the next request on."""
        self._settings = settings

    async def answer(
        self, route: str, body: bytes, session: str | None = None, timeout_s: float | None = None
    ) -> tuple[ResponseHead, AsyncGenerator[bytes, None]]:
        """Send an OpenAI request to an engine. Returns the head of its answer, once that is known, and the body.

        Requests of one `session` go to the same engine. After `timeout_s` the request ends, whatever it waits for.

        Raises:
            RequestError: if it is refused, or no engine can take it. Reading the body raises it too, if the body breaks off.
        """
        settings = self._settings
        request = self._routed(route, body, session, timeout_s)
        try:
            head, pieces = await self._first_answer(request)
        except DeadlineError:
            raise RequestError(errors.deadline_exceeded(request.deadline.seconds, settings.max_timeout_s)) from None
        except BaseException:
            request.deadline.cancel()
            raise
        return head, read_body(request, head, pieces, settings.max_timeout_s)

    def _routed(self, route: str, body: bytes, session: str | None, timeout_s: float | None) -> RoutedRequest:
        parsed = error_responses.parse(ROUTES[route], body)
        served = self._fleet.snapshot.served_model_name
        if parsed.model not in (None, served):
            raise RequestError(errors.model_not_found(parsed.model, served))
        settings = self._settings
        seconds = min(timeout_s or settings.default_timeout_s, settings.max_timeout_s)
        affinity = parsed.affinity(session, settings.affinity_chars)
        return RoutedRequest(route, body, parsed.samples, affinity, Deadline(seconds))

    async def _first_answer(self, request: RoutedRequest) -> tuple[ResponseHead, AsyncGenerator[Piece, None]]:
        """The answer of the first engine, or of a second one if the first is lost before it answers."""
        lost: dict[str, ApiError] = {}
        while True:
            slot = await request.deadline.wait(self._fleet.reserve(request, lost, self._settings))
            pieces = self._pieces(request, slot)
            try:
                head = await anext(pieces)
            except EngineLostError as error:
                if lost:
                    raise RequestError(error.error) from error
                lost[slot.engine.actor] = error.error
                continue
            if isinstance(head, ResponseHead):
                return head, pieces
            await pieces.aclose()
            assert isinstance(head, ApiError)
            raise RequestError(head)

    async def _pieces(self, request: RoutedRequest, slot: Slot) -> AsyncGenerator[Piece, None]:
        """What the engine of a slot answers. The slot is released at the end."""
        addresses, engine = self._fleet.addresses, slot.engine
        try:
            address = await request.deadline.wait(addresses.find(engine, self._fleet.snapshot.namespace))
            async with aclosing(ask(engine.name, address, request)) as pieces:
                async for piece in pieces:
                    yield piece
        except EngineLostError:
            addresses.forget(engine.actor)
            raise
        finally:
            self._fleet.release(slot)
