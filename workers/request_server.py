"""The socket on which an engine takes requests, in the event loop that SGLang answers in."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from cluster.messages import errors, request_socket
from cluster.messages.answer import Piece
from cluster.messages.request_socket import Address

_LOG = logging.getLogger(__name__)

ASK_TIMEOUT_S = 30.0
"""Time for a whole request to arrive on a connection; an ingress sends it at once."""


class _LeftError(Exception):
    """The ingress has closed the connection."""


class RequestServer:
    """Answers one request for each connection, and ends the request when its connection ends."""

    def __init__(self, respond: Callable[[str, bytes], AsyncGenerator[Piece, None]]) -> None:
        """`respond` answers a route and a body. If it is closed or cancelled early, it ends the request in the engine."""
        self._respond = respond
        self._key = secrets.token_hex(16)

    async def open(self, host: str) -> Address:
        """Listen on any free port of `host`, for as long as this loop runs."""
        self._server = await asyncio.start_server(self._serve, host, 0, backlog=1024)
        return Address(host=host, port=self._server.sockets[0].getsockname()[1], key=self._key)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request_socket.notice_a_lost_host(writer)
            route, body = await asyncio.wait_for(request_socket.read_request(reader, self._key), ASK_TIMEOUT_S)
        except (request_socket.RefusedError, OSError, EOFError, TimeoutError):
            writer.close()
            return
        answering = asyncio.create_task(self._answer(writer, route, body))
        leaving = asyncio.create_task(_closed(reader))
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        # Cancelling the task makes SGLang drop the request, whatever stage it is in. SGLang's `abort_request` would do nothing
        # for a request that is still being tokenized, nor for several samples, because each gets an id of its own.
        answering.cancel()
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, route: str, body: bytes) -> None:
        try:
            async with aclosing(self._respond(route, body)) as pieces:
                async for piece in pieces:
                    await _send(writer, request_socket.frame(piece))
            await _send(writer, request_socket.END)
        except _LeftError:
            return
        except Exception:
            _LOG.exception("a request failed")
            error = errors.engine_failed("the engine failed while it answered")
            with suppress(_LeftError):
                await _send(writer, request_socket.frame(error) + request_socket.END)


async def _closed(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read()


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(frame)
    try:
        await writer.drain()
    except OSError as error:
        raise _LeftError from error
