"""HTTP routes for clients, and handle methods for other services.

No postponed annotations here: FastAPI cannot resolve them through `serve.ingress`.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field
from ray import serve

from cluster.messages import errors
from cluster.messages.answer import EVENT_STREAM
from cluster.messages.base import Message
from cluster.messages.settings import Mode
from cluster.messages.status import FleetStatus
from serve_app import error_responses, headers, openapi
from serve_app.access import middleware
from serve_app.access.access_policy import AccessPolicy
from serve_app.bodies.chat import ChatRequest
from serve_app.bodies.completion import CompletionRequest
from serve_app.ingress_metrics import IngressMetrics
from serve_app.ingress_settings import IngressSettings
from serve_app.relay import sse
from serve_app.relay.fleet_view import NO_CONTROLLER, FleetView
from serve_app.relay.relay import Relay

_LOG = logging.getLogger(__name__)

app = FastAPI(title="specfleet", docs_url=None, redoc_url=None)
error_responses.install(app)
middleware.install(app)
openapi.install(app)


@contextmanager
def _controller_needed() -> Iterator[None]:
    try:
        yield
    except NO_CONTROLLER as error:
        raise error_responses.RequestError(errors.no_engine("there is no controller at the moment")) from error


class ModeRequest(Message):
    """Body of `POST /fleet/mode`."""

    mode: Mode = Field(description="auto, on or off; see the controller's settings.")


# A replica that is replaced gets a quarter of an hour to finish its streams. Replicas claim no core of Ray's, so that any number
# of them fits on a small machine. Their many threads, most of them Ray's, share two heaps: glibc keeps what is freed in each.
@serve.deployment(
    name="Ingress",
    max_ongoing_requests=10_000,
    user_config={},
    graceful_shutdown_timeout_s=900,
    ray_actor_options={"num_cpus": 0, "runtime_env": {"env_vars": {"MALLOC_ARENA_MAX": "2"}}},
)
@serve.ingress(app)
class Ingress:
    """Takes requests. There may be any number of replicas."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self._fleet = FleetView(controller, IngressMetrics())
        self._relay = Relay(self._fleet)
        self._syncing = asyncio.get_running_loop().create_task(self._fleet.keep_in_sync())
        self._configured = False

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Use a new `user_config`.

        A wrong one is refused: the last one stays in force, and the log says why. Only the first one raises, since Serve
        answers an error here by replacing all replicas, again and again.
        """
        try:
            settings = IngressSettings.model_validate(user_config)
            policy = AccessPolicy(settings)
        except ValueError as error:
            if not self._configured:
                raise
            _LOG.error("user_config refused: %s", error)
            return
        self.app.state.access_policy = policy  # type: ignore[attr-defined]  # Serve gives each replica an `app` of its own
        self._relay.configure(settings)
        self._configured = True

    def check_health(self) -> None:
        """Let Serve replace a replica that no longer fetches snapshots, which should never happen."""
        if self._syncing.done():
            self._syncing.result()

    # -- HTTP --

    @app.post("/v1/chat/completions", **openapi.answers(ChatRequest))
    async def http_chat(self, request: Request) -> Response:
        return await self._respond("chat/completions", request)

    @app.post("/v1/completions", **openapi.answers(CompletionRequest))
    async def http_completions(self, request: Request) -> Response:
        return await self._respond("completions", request)

    @app.get("/v1/models")
    async def http_models(self) -> dict[str, Any]:
        model = {"id": self._fleet.snapshot.served_model_name, "object": "model", "created": 0, "owned_by": "specfleet"}
        return {"object": "list", "data": [model]}

    @app.get("/health")
    async def http_health(self) -> Response:
        """200 while at least one engine serves, else 503."""
        fleet = self._fleet.snapshot
        body = {"serving": len(fleet.serving), "engines": {e.name: e.state for e in fleet.engines}}
        return JSONResponse(body, 200 if fleet.serving else 503)

    @app.get("/fleet")
    async def http_fleet(self) -> FleetStatus:
        return await self.fleet()

    @app.post("/fleet/mode", **openapi.takes(ModeRequest))
    async def http_mode(self, request: Request) -> ModeRequest:
        wanted = error_responses.parse(ModeRequest, await request.body())
        await self.set_mode(wanted.mode)
        return wanted

    async def _respond(self, route: str, request: Request) -> Response:
        session, timeout_s = headers.session(request.headers), headers.timeout_s(request.headers)
        head, pieces = await self._relay.answer(route, await request.body(), session, timeout_s)
        if head.media_type == EVENT_STREAM:
            return StreamingResponse(sse.with_error_event(pieces), media_type=head.media_type)
        return Response(b"".join([piece async for piece in pieces]), media_type=head.media_type)

    # -- handle methods, without HTTP. `session` and `timeout_s` stand for the headers of HTTP clients. --

    async def generate(
        self, prompt: str, *, session: str | None = None, timeout_s: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Complete a prompt. `options` are OpenAI's; returns OpenAI's completion.

        Raises:
            RequestError: with the error that an HTTP client would get.
        """
        return await self._ask("completions", {**options, "prompt": prompt, "stream": False}, session, timeout_s)

    async def generate_stream(
        self, prompt: str, *, session: str | None = None, timeout_s: float | None = None, **options: Any
    ) -> AsyncIterator[str]:
        """Complete a prompt and yield its text piece by piece. Call it with `handle.options(stream=True)`."""
        body = {"model": self._fleet.snapshot.served_model_name, **options, "prompt": prompt, "stream": True}
        _, pieces = await self._relay.answer("completions", json.dumps(body).encode(), session, timeout_s)
        async for event in sse.events(pieces):
            for choice in event["choices"]:
                yield choice["text"]

    async def chat(
        self, messages: list[dict[str, Any]], *, session: str | None = None, timeout_s: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """Answer a chat. `options` are OpenAI's; returns OpenAI's chat completion."""
        return await self._ask("chat/completions", {**options, "messages": messages, "stream": False}, session, timeout_s)

    async def fleet(self) -> FleetStatus:
        """Every engine: state, load, the directive in force and why, acceptance."""
        with _controller_needed():
            status: FleetStatus = await self._controller.status.remote()
        return status

    async def set_mode(self, mode: Mode) -> None:
        """Switch the whole fleet to auto, on or off."""
        with _controller_needed():
            await self._controller.set_mode.remote(mode)

    async def _ask(self, route: str, body: dict[str, Any], session: str | None, timeout_s: float | None) -> dict[str, Any]:
        body = {"model": self._fleet.snapshot.served_model_name, **body}
        _, pieces = await self._relay.answer(route, json.dumps(body).encode(), session, timeout_s)
        answer: dict[str, Any] = json.loads(b"".join([piece async for piece in pieces]))
        return answer
