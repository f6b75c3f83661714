"""What an ingress and an engine tell each other about one request: one TCP connection, and frames in it.

A Ray actor call for each piece of an answer would cost several threads' wake-ups at both ends, many times what a write to a
socket does. The connection stands for the request: who closes it early has ended it, and one that breaks was lost.
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

_FRAME = struct.Struct("!cI")  # what it holds, and how many bytes
_ASK, _HEAD, _ERROR, _BODY, _END = b"a", b"h", b"e", b"b", b"."
_LONGEST_ASK = 1024

END = _FRAME.pack(_END, 0)
"""Comes behind a whole answer."""

_NOTICE_A_LOST_HOST = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 11_000),
]


class Address(Message):
    """Where an engine takes requests."""

    host: str = Field(description="Address of its node.")
    port: int = Field(description="TCP port.")
    key: str = Field(description="Shows that who asks has it from the engine's actor.")


class _Ask(Message):
    key: str = Field(description="That of the engine's address.")
    route: str = Field(description="Which of OpenAI's routes, as in `serve_app.bodies.routes.ROUTES`.")


class RefusedError(Exception):
    """Whoever has connected is none of ours."""


async def connect(address: Address, route: str, body: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request; its answer is to be `read`.

    Raises:
        OSError, asyncio.TimeoutError: if nobody is there.
    """
    reader, writer = await asyncio.wait_for(asyncio.open_connection(address.host, address.port), CONNECT_TIMEOUT_S)
    notice_a_lost_host(writer)
    ask = _Ask(key=address.key, route=route).model_dump_json().encode()
    writer.write(_pack(_ASK, ask) + _pack(_BODY, body))
    return reader, writer


async def take(reader: asyncio.StreamReader, key: str) -> tuple[str, bytes]:
    """The route and the body of a request.

    Raises:
        RefusedError: if it does not come with `key`.
        OSError, EOFError: if the connection ends before.
    """
    kind, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    if kind != _ASK or length > _LONGEST_ASK:
        raise RefusedError
    try:
        ask = _Ask.model_validate_json(await reader.readexactly(length))
    except ValueError:
        raise RefusedError from None
    if not hmac.compare_digest(ask.key.encode(), key.encode()):
        raise RefusedError
    _, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    return ask.route, await reader.readexactly(length)


def frame(piece: Piece) -> bytes:
    """A piece as it is sent."""
    if isinstance(piece, bytes):
        return _pack(_BODY, piece)
    return _pack(_HEAD if isinstance(piece, ResponseHead) else _ERROR, piece.model_dump_json().encode())


async def read(reader: asyncio.StreamReader) -> Piece | None:
    """The next piece of an answer; None behind the last.

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
    """Let a connection break within some ten seconds when the other machine has gone without a word."""
    for option in _NOTICE_A_LOST_HOST:
        writer.get_extra_info("socket").setsockopt(*option)


def _pack(kind: bytes, content: bytes) -> bytes:
    return _FRAME.pack(kind, len(content)) + content
