"""One request at one engine."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

from cluster.protocol import ApiError, ResponseHead
from serve_app.deadline import Deadline

_LOG = logging.getLogger(__name__)

Piece = ResponseHead | ApiError | bytes


class EngineLostError(Exception):
    """The engine cannot go on with a request, through no fault of the request: another engine may do it."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


async def ask(handle: Any, engine: str, route: str, body: bytes, deadline: Deadline) -> AsyncGenerator[Piece, None]:
    """A head and then the body, or an error, from the engine actor `handle`.

    Whoever stops reading early, and for whatever reason, ends the request in the engine.

    Raises:
        EngineLostError: if the engine is gone, going or not yet there.
        DeadlineError: when the time is over.
    """
    rid = uuid.uuid4().hex
    ended = False
    refs = handle.respond.options(num_returns="streaming").remote(route, body, rid)
    try:
        first = True
        while True:
            try:
                piece: Piece = await deadline.wait(_next(refs))
            except StopAsyncIteration:
                ended = True
                return
            if isinstance(piece, ApiError):
                ended = True  # nothing comes after an error
                if first and piece.status == 503:
                    raise EngineLostError(piece)
            first = False
            yield piece
    except RayActorError as error:
        ended = isinstance(error, ActorDiedError)
        _LOG.warning("engine %s was lost during a request: %s", engine, error)
        raise EngineLostError(lost(engine)) from error
    except RayTaskError:
        ended = True
        _LOG.exception("engine %s failed during a request", engine)
        message = f"engine {engine} failed while it answered"
        yield ApiError(status=502, message=message, type="server_error", code="engine_failed")
    finally:
        if not ended:
            handle.abort.remote(rid)


def lost(engine: str) -> ApiError:
    message = f"engine {engine} was lost while it answered; send the request again"
    return ApiError(status=502, message=message, type="server_error", code="engine_lost")


async def _next(refs: Any) -> Piece:
    piece: Piece = await (await anext(refs))
    return piece
