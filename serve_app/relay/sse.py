"""Server-sent events, as OpenAI's streams use them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from serve_app.error_responses import RequestError

DONE = b"data: [DONE]\n\n"
"""Ends a stream that is whole."""


async def with_error_event(pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Pass a stream on. If it breaks off, a last event says why, and no `[DONE]` comes."""
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                yield piece
        except RequestError as refused:
            yield f"data: {json.dumps(refused.error.body())}\n\n".encode()


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Decode a stream, up to its `[DONE]`. `pieces` may be cut anywhere."""
    buffer = b""
    async for piece in pieces:
        buffer += piece
        *whole, buffer = buffer.split(b"\n\n")
        for event in whole:
            data = event.removeprefix(b"data: ")
            if data != b"[DONE]":
                yield json.loads(data)
