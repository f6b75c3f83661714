"""One request at one engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from ray.exceptions import RayError

from cluster.messages import errors, request_socket
from cluster.messages.answer import Piece
from cluster.messages.errors import ApiError
from cluster.messages.request_socket import Address
from cluster.routing.deadline import Deadline

_LOG = logging.getLogger(__name__)


class EngineLostError(Exception):
    """The engine cannot go on with a request, through no fault of the request: another engine may do it."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


async def address_of(actor: Any, engine: str) -> Address:
    """Where an engine takes requests.

    Raises:
        EngineLostError: if it takes none.
    """
    try:
        address: Address | None = await actor.address.remote()
    except RayError as error:
        raise EngineLostError(errors.engine_lost(engine)) from error
    if address is None:
        raise EngineLostError(errors.no_engine(f"engine {engine} takes no requests"))
    return address


async def ask(address: Address, engine: str, route: str, body: bytes, deadline: Deadline) -> AsyncGenerator[Piece, None]:
    """A head and then the body, or an error, from the engine at `address`.

    Whoever stops reading early, and for whatever reason, ends the request in the engine.

    Raises:
        EngineLostError: if the engine is gone, going or not yet there.
        DeadlineError: when the time is over.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await deadline.wait(request_socket.connect(address, route, body))
        first = True
        while (piece := await deadline.wait(request_socket.read(reader))) is not None:
            if first and isinstance(piece, ApiError) and piece.status == 503:
                raise EngineLostError(piece)
            first = False
            yield piece
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        _LOG.warning("engine %s was lost during a request: %r", engine, error)
        raise EngineLostError(errors.engine_lost(engine)) from error
    finally:
        if writer is not None:
            writer.close()
