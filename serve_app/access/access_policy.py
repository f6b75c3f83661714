"""Who may do what: decided by a request's method, path and key."""

from __future__ import annotations

from starlette.datastructures import Headers

from cluster.messages import errors
from cluster.messages.errors import ApiError
from serve_app.access.keys import KeySet
from serve_app.ingress_settings import IngressSettings

OPEN_PATHS = ("/health",)
"""Load balancers ask these without a key. The answers hold nothing but states."""

ADMIN_PATHS = "/fleet"
"""A request to a path that begins with this changes the fleet, unless it only reads."""


class AccessPolicy:
    """Decides by the ingress's settings which requests are allowed."""

    def __init__(self, settings: IngressSettings) -> None:
        """Read the keys.

        Raises:
            ValueError: if they cannot be read.
        """
        self._clients = None if settings.api_keys is None else KeySet(settings.api_keys.read())
        self._admins = None if settings.admin_keys is None else KeySet(settings.admin_keys.read())
        self._origins = settings.cors_origins
        self.max_body_bytes = settings.max_body_bytes

    def refusal(self, method: str, path: str, headers: Headers) -> ApiError | None:
        """Why a request is refused; None if it is allowed. `path` is without the application's prefix."""
        if path in OPEN_PATHS:
            return None
        changes_the_fleet = method not in ("GET", "HEAD") and path.startswith(ADMIN_PATHS)
        if self._clients is None and not (changes_the_fleet and self._admins):
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return errors.invalid_api_key("no API key; send it as `Authorization: Bearer KEY`")
        is_client = self._clients is not None and self._clients.holds(key)
        is_admin = self._admins is not None and self._admins.holds(key)
        if is_admin or (is_client and not changes_the_fleet):
            return None
        if is_client:
            return errors.insufficient_permissions(method, path)
        return errors.invalid_api_key("this API key is not known here")

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of an origin may call from a browser."""
        return origin in self._origins or "*" in self._origins
