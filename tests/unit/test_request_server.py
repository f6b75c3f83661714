"""Requests and answers over the wire, at an engine that answers as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from cluster.messages import request_socket
from cluster.messages.answer import Piece, ResponseHead
from cluster.messages.errors import ApiError
from cluster.messages.request_socket import Address
from workers.request_server import RequestServer

FOR_EVER = "for ever"


class Engine:
    """Answers by a script: pieces to yield, an error to raise, or to wait for ever."""

    def __init__(self, *script: Any) -> None:
        self.script = script
        self.asked: list[tuple[str, bytes]] = []
        self.whole = False
        self.ended = asyncio.Event()

    async def respond(self, route: str, body: bytes) -> AsyncGenerator[Piece, None]:
        self.asked.append((route, body))
        try:
            for item in self.script:
                if isinstance(item, Exception):
                    raise item
                if item == FOR_EVER:
                    await asyncio.Event().wait()
                yield item
            self.whole = True
        finally:
            self.ended.set()


async def opened(engine: Engine) -> Address:
    return await RequestServer(engine.respond).open("127.0.0.1")


async def ask(address: Address, body: bytes = b"{}") -> list[Piece]:
    reader, writer = await request_socket.connect(address, "completions", body)
    pieces = []
    while (piece := await request_socket.read_piece(reader)) is not None:
        pieces.append(piece)
    writer.close()
    return pieces


async def test_bytes_arrive_as_they_were_sent() -> None:
    script = [ResponseHead(media_type="text/event-stream"), b"data: \xc3\xa4\n\n", b"", b"x" * 1_000_000]
    engine = Engine(*script)
    body = bytes(range(256)) * 4096
    assert await ask(await opened(engine), body) == script
    assert engine.asked == [("completions", body)]
    assert engine.whole


async def test_answers_at_once_do_not_mix() -> None:
    address = await opened(Engine(ResponseHead(), *[b"a", b"b"] * 50))
    answers = await asyncio.gather(*(ask(address) for _ in range(50)))
    assert all(answer == [ResponseHead(), *[b"a", b"b"] * 50] for answer in answers)


async def test_an_engine_that_raises_is_told_as_an_error() -> None:
    *_, error = await ask(await opened(Engine(ResponseHead(), b"a", KeyError("secret"))))
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (502, "engine_failed")
    assert "secret" not in error.message


@pytest.mark.parametrize("before", [[], [ResponseHead(), b"a"]], ids=["before the head", "in the body"])
async def test_who_leaves_ends_the_request(before: list[Any]) -> None:
    engine = Engine(*before, FOR_EVER)
    reader, writer = await request_socket.connect(await opened(engine), "completions", b"{}")
    for piece in before:
        assert await request_socket.read_piece(reader) == piece
    while not engine.asked:
        await asyncio.sleep(0.001)
    writer.close()
    await asyncio.wait_for(engine.ended.wait(), 60)
    assert not engine.whole


async def test_who_leaves_without_reading_a_long_answer_ends_it() -> None:
    engine = Engine(ResponseHead(), *[b"x" * 1_000_000] * 20)
    _, writer = await request_socket.connect(await opened(engine), "completions", b"{}")
    await asyncio.sleep(0.05)
    assert not engine.ended.is_set()
    writer.close()
    await asyncio.wait_for(engine.ended.wait(), 60)
    assert not engine.whole


@pytest.mark.parametrize("hello", [b"GET / HTTP/1.1\r\n\r\n", b"a\0\0\0\2{}", b"a\xff\xff\xff\xff"])
async def test_strangers_are_cut_off(hello: bytes) -> None:
    engine = Engine(ResponseHead())
    address = await opened(engine)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(hello)
    with pytest.raises((EOFError, OSError)):
        await asyncio.wait_for(reader.readexactly(1), 60)
    with pytest.raises((EOFError, OSError)):
        await ask(address.model_copy(update={"key": "guessed"}))
    assert not engine.asked
