"""Where an engine takes its requests: a socket in the loop that SGLang answers in."""

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
"""From a connection to the whole request, which an ingress sends at once."""


class _LeftError(Exception):
    """Whoever asked is gone."""


class RequestServer:
    """Answers one request a connection, and ends it when its connection does."""

    def __init__(self, respond: Callable[[str, bytes], AsyncGenerator[Piece, None]]) -> None:
        """`respond` answers a route and a body; closed or cancelled early, it ends the request in the engine."""
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
        leaving = asyncio.create_task(_end(reader))
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        # Of a cancelled task SGLang drops all it has, whatever it is at. Its own `abort_request` would do nothing for a request
        # that it is tokenizing still, nor for one of several samples, which get ids of their own.
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


async def _end(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read()


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(frame)
    try:
        await writer.drain()
    except OSError as error:
        raise _LeftError from error
