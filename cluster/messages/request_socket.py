"""What an ingress and an engine send each other for one request: frames on a TCP connection of its own.

A Ray actor call for each piece of an answer would wake several threads at both ends, and cost many times as much as a write to a
socket. The connection stands for the request: closing it early ends the request, and a connection that breaks loses it.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import struct

from pydantic import Field

from cluster.messages.answer import Piece, ResponseHead
from cluster.messages.base import Message
from cluster.messages.errors import ApiError

CONNECT_TIMEOUT_S = 5.0

_FRAME = struct.Struct("!cI")  # kind of the content, and its size in bytes
_REQUEST, _HEAD, _ERROR, _BODY, _END = b"a", b"h", b"e", b"b", b"."
_LONGEST_REQUEST = 1024  # without the body, which has a frame of its own

END = _FRAME.pack(_END, 0)
"""Follows a whole answer."""

_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 11_000),
]


class Address(Message):
    """Where an engine takes requests."""

    host: str = Field(description="Address of its node.")
    port: int = Field(description="TCP port.")
    key: str = Field(description="Proves that a request comes from somebody who may call the engine's actor.")


class _Request(Message):
    key: str = Field(description="The key of the engine's address.")
    route: str = Field(description="Which of OpenAI's routes, as in `serve_app.bodies.routes.ROUTES`.")


class RefusedError(Exception):
    """A connection does not come from an ingress of this application."""


async def connect(address: Address, route: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an engine and send a request. Its answer is read by `read_piece`.

    Raises:
        OSError, asyncio.TimeoutError: if nobody listens there.
    """
    reader, writer = await asyncio.wait_for(asyncio.open_connection(address.host, address.port), CONNECT_TIMEOUT_S)
    notice_a_lost_host(writer)
    request = _Request(key=address.key, route=route).model_dump_json().encode()
    writer.write(_pack(_REQUEST, request) + _pack(_BODY, body))
    return reader, writer


async def read_request(reader: asyncio.StreamReader, key: str) -> tuple[str, bytes]:
    """The route and the body of a request.

    Raises:
        RefusedError: if it does not hold `key`.
        OSError, EOFError: if the connection ends before the request does.
    """
    kind, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    if kind != _REQUEST or length > _LONGEST_REQUEST:
        raise RefusedError
    try:
        request = _Request.model_validate_json(await reader.readexactly(length))
    except ValueError:
        raise RefusedError from None
    if not hmac.compare_digest(request.key.encode(), key.encode()):
        raise RefusedError
    _, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    return request.route, await reader.readexactly(length)


def frame(piece: Piece) -> bytes:
    """Encode a piece."""
    if isinstance(piece, bytes):
        return _pack(_BODY, piece)
    return _pack(_HEAD if isinstance(piece, ResponseHead) else _ERROR, piece.model_dump_json().encode())


async def read_piece(reader: asyncio.StreamReader) -> Piece | None:
    """The next piece of an answer; None after the last.

    Raises:
        OSError, EOFError: if the connection ends before the answer does.
    """
    kind, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    if kind == _END:
        return None
    content = await reader.readexactly(length)
    if kind == _BODY:
        return content
    return (ResponseHead if kind == _HEAD else ApiError).model_validate_json(content)


def notice_a_lost_host(writer: asyncio.StreamWriter) -> None:
    """Let a connection break within about ten seconds if the other machine is gone without having closed it."""
    for option in _KEEPALIVE:
        writer.get_extra_info("socket").setsockopt(*option)


def _pack(kind: bytes, content: bytes) -> bytes:
    return _FRAME.pack(kind, len(content)) + content
