"""Where an engine takes its requests: a socket in the loop that SGLang answers in."""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from cluster import wire
from cluster.protocol import ApiError
from cluster.wire import Address, Piece

_LOG = logging.getLogger(__name__)

ABORT_EVERY_S = 0.1


class Door:
    """Answers one request a connection, and ends it when its connection does."""

    def __init__(self, respond: Callable[[str, bytes, str], AsyncIterator[Piece]], abort: Callable[[str], None]) -> None:
        """`respond` answers a route and a body under a request id, `abort` ends what has this id: then `respond` ends too."""
        self._respond = respond
        self._abort = abort
        self._key = secrets.token_hex(16)

    async def open(self, host: str) -> Address:
        """Listen on any free port of `host`, for as long as this loop runs."""
        self._server = await asyncio.start_server(self._serve, host, 0, backlog=1024)
        return Address(host=host, port=self._server.sockets[0].getsockname()[1], key=self._key)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wire.notice_a_lost_host(writer)
            route, body = await wire.take(reader, self._key)
        except (wire.RefusedError, OSError, EOFError):
            writer.close()
            return
        rid = uuid.uuid4().hex
        answering = asyncio.create_task(self._answer(writer, route, body, rid))
        leaving = asyncio.create_task(_end(reader))
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        while not answering.done():
            # Again and again, since SGLang does not know a request yet that it is tokenizing.
            self._abort(rid)
            await asyncio.wait((answering,), timeout=ABORT_EVERY_S)
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, route: str, body: bytes, rid: str) -> None:
        try:
            async for piece in self._respond(route, body, rid):
                await _send(writer, wire.frame(piece))
        except Exception:
            _LOG.exception("a request failed")
            error = ApiError(status=502, message="the engine failed while it answered", type="server_error", code="engine_failed")
            await _send(writer, wire.frame(error))
        await _send(writer, wire.END)


async def _end(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read()


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """Does nothing once nobody listens: SGLang's answer is read to its end all the same, which the abort brings about."""
    if not writer.is_closing():
        writer.write(frame)
        with suppress(OSError):
            await writer.drain()
