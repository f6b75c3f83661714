"""What stands before the routes: keys, the size of bodies, origins."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import Response
from starlette._utils import get_route_path
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.messages import errors
from cluster.messages.errors import ApiError
from serve_app.access.keys import KeySet
from serve_app.error_responses import RequestError, render
from serve_app.headers import SESSION, TIMEOUT
from serve_app.ingress_settings import IngressSettings

OPEN_PATHS = ("/health",)
"""Asked by load balancers, which have no key. It tells nothing but states."""


class AccessPolicy:
    """Decides about a request by its path and headers."""

    def __init__(self, settings: IngressSettings) -> None:
        """Read the keys.

        Raises:
            ValueError: if they cannot be read.
        """
        self._settings = settings
        self._clients = None if settings.api_keys is None else KeySet(settings.api_keys.read())
        self._admins = None if settings.admin_keys is None else KeySet(settings.admin_keys.read())
        self.max_body_bytes = settings.max_body_bytes

    def refusal(self, method: str, path: str, headers: Headers) -> ApiError | None:
        """Why a request may not come in; None if it may."""
        if path in OPEN_PATHS:
            return None
        changes_the_fleet = method not in ("GET", "HEAD") and path.startswith("/fleet")
        if self._clients is None and not (changes_the_fleet and self._admins):
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return errors.invalid_api_key("no API key; send it as `Authorization: Bearer KEY`")
        key = key.strip()
        is_admin = self._admins is not None and self._admins.holds(key)
        if is_admin or (not changes_the_fleet and self._clients is not None and self._clients.holds(key)):
            return None
        if changes_the_fleet and self._clients is not None and self._clients.holds(key):
            return errors.insufficient_permissions(method, path)
        return errors.invalid_api_key("this API key is not known here")

    def allowed_origin(self, origin: str | None) -> str | None:
        """The origin to name in the answer; None for one that may not call."""
        allowed = self._settings.cors_origins
        return origin if origin and (origin in allowed or "*" in allowed) else None


class AccessMiddleware:
    """Plain ASGI: a `BaseHTTPMiddleware` would put a task and a queue between a stream and its client."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guard: AccessPolicy = scope["app"].state.guard
        headers = Headers(scope=scope)
        origin = guard.allowed_origin(headers.get("origin"))
        if origin:
            send = _with_origin(send, origin)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(allowed=origin is not None)(scope, receive, send)
            return
        refusal = guard.refusal(scope["method"], get_route_path(scope), headers)
        if refusal:
            await render(refusal)(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, guard.max_body_bytes), send)


def install(app: FastAPI) -> None:
    """Put the guard before all routes of `app`; `app.state.guard` holds the one in force."""
    app.add_middleware(AccessMiddleware)


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


def _with_origin(send: Send, origin: str) -> Send:
    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers.add_vary_header("Origin")
        await send(message)

    return named


def _preflight(allowed: bool) -> Response:
    if not allowed:
        return render(errors.from_status(403, "this origin may not call; see cors_origins"))
    headers = {
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": f"Authorization, Content-Type, {TIMEOUT}, {SESSION}",
        "Access-Control-Max-Age": "600",
    }
    return Response(status_code=204, headers=headers)
