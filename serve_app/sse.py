"""Server-sent events, as OpenAI's streams use them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from cluster.protocol import ApiError
from serve_app.errors import RequestError


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
    return ApiError(status=502, message=str(error.get("message", error)), type="server_error", code="stream_failed")
