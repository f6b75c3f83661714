"""One request at one engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from cluster.messages import errors, request_socket
from cluster.messages.answer import Piece
from cluster.messages.errors import ApiError
from cluster.messages.request_socket import Address
from cluster.routing.routed_request import RoutedRequest

_LOG = logging.getLogger(__name__)


class EngineLostError(Exception):
    """The engine cannot answer a request, through no fault of the request. Another engine may answer it."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


async def ask(engine: str, address: Address, request: RoutedRequest) -> AsyncGenerator[Piece, None]:
    """A head and then the body, or an error, from the engine at `address`.

    When the caller stops reading, for whatever reason, the request ends in the engine.

    Raises:
        EngineLostError: if the engine is gone, ending or not serving yet.
        DeadlineError: when the request's time is over.
    """
    deadline = request.deadline
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await deadline.wait(request_socket.connect(address, request.route, request.body))
        first = True
        while (piece := await deadline.wait(request_socket.read_piece(reader))) is not None:
            if first and isinstance(piece, ApiError) and piece.status == 503:
                raise EngineLostError(piece)
            first = False
            yield piece
    except (TimeoutError, OSError, EOFError) as error:
        _LOG.warning("engine %s was lost during a request: %r", engine, error)
        raise EngineLostError(errors.engine_lost(engine)) from error
    finally:
        if writer is not None:
            writer.close()
