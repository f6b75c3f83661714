"""HTTP headers in which a client says more about its request."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cluster.messages import errors
from serve_app.error_responses import RequestError

TIMEOUT = "X-Request-Timeout"
SESSION = "X-Session-Id"


def timeout_s(headers: Mapping[str, str]) -> float | None:
    """How long the request may take, in seconds; None if the header is missing.

    Raises:
        RequestError: if it is not a positive number.
    """
    named = headers.get(TIMEOUT)
    if named is None:
        return None
    try:
        seconds = float(named)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        message = f"{TIMEOUT}: must be a positive number of seconds, not {named!r}"
        raise RequestError(errors.invalid_field(message, TIMEOUT))
    return seconds


def session(headers: Mapping[str, str]) -> str | None:
    """The session that the request belongs to, if it names one."""
    return headers.get(SESSION) or None
