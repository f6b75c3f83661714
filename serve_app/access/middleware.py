"""Checks before all routes: origins, keys, and the size of bodies."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.messages import errors
from serve_app.access.access_policy import AccessPolicy
from serve_app.access.origins import OriginsMiddleware
from serve_app.error_responses import RequestError, render


class AccessMiddleware:
    """Plain ASGI: a `BaseHTTPMiddleware` would put a task and a queue between a stream and its client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        policy: AccessPolicy = scope["app"].state.access_policy
        refusal = policy.refusal(scope["method"], _path(scope), Headers(scope=scope))
        if refusal:
            await render(refusal)(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, policy.max_body_bytes), send)


def install(app: FastAPI) -> None:
    """Put the access policy before all routes of `app`. `app.state.access_policy` holds the one in force."""
    app.add_middleware(AccessMiddleware)
    app.add_middleware(OriginsMiddleware, state=app.state)  # the last one added is asked first


def _path(scope: Scope) -> str:
    """The path without the application's prefix."""
    prefix: str = scope.get("root_path", "").rstrip("/")
    path: str = scope["path"]
    return path.removeprefix(prefix)


def _bounded(receive: Receive, limit: int) -> Receive:
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise RequestError(errors.request_too_large(limit))
        return message

    return bounded
