"""Which pages may call from a browser (CORS)."""

from __future__ import annotations

from starlette.datastructures import Headers, State
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from cluster.messages import errors
from serve_app.access.access_policy import AccessPolicy
from serve_app.error_responses import render
from serve_app.headers import SESSION, TIMEOUT


class OriginsMiddleware(CORSMiddleware):
    """Starlette's, with the origins of the policy in force, which may change while the application runs."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        """`state` is the application's; its `access_policy` is the one in force."""
        super().__init__(app, allow_methods=("GET", "POST"), allow_headers=("Authorization", TIMEOUT, SESSION))
        self._state = state

    def is_allowed_origin(self, origin: str) -> bool:
        policy: AccessPolicy = self._state.access_policy
        return policy.allows_origin(origin)

    def preflight_response(self, request_headers: Headers) -> Response:
        """Starlette's, with a refusal in OpenAI's format."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        return render(errors.from_status(403, f"{bytes(response.body).decode()}; see cors_origins"))
