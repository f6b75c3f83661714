"""Server-sent events, as OpenAI's streams use them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from cluster.messages.answer import ApiError
from serve_app.error_responses import RequestError


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Decode a stream, up to its `[DONE]`. `pieces` may be cut anywhere.

    Raises:
        RequestError: for an error event.
    """
    buffer = b""
    async for piece in pieces:
        buffer += piece
        *whole, buffer = buffer.split(b"\n\n")
        for event in whole:
            data = event.removeprefix(b"data: ")
            if data == b"[DONE]":
                continue
            decoded = json.loads(data)
            if "error" in decoded:
                raise RequestError(_error(decoded["error"]))
            yield decoded


def _error(error: dict[str, Any]) -> ApiError:
    """The error that `error_responses.event` wrote. An event has no status, but the rest of an error tells it."""
    refused, late = error["type"] == "invalid_request_error", error["code"] == "deadline_exceeded"
    return ApiError(status=400 if refused else 504 if late else 502, **error)
