"""The body of an answer, and its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from cluster.messages import errors
from cluster.messages.answer import EVENT_STREAM, Piece, ResponseHead
from cluster.messages.errors import ApiError
from cluster.routing.deadline import DeadlineError
from cluster.routing.routed_request import RoutedRequest
from serve_app.error_responses import RequestError
from serve_app.relay import sse
from serve_app.relay.engine_request import EngineLostError


async def read_body(
    request: RoutedRequest, head: ResponseHead, pieces: AsyncGenerator[Piece, None], longest_s: float
) -> AsyncGenerator[bytes, None]:
    """The pieces of the body after `head`. `longest_s` is the longest timeout that a request may ask for.

    Raises:
        RequestError: if the body breaks off. A stream is whole only if it ends with `[DONE]`.
    """
    last = b""
    try:
        async for piece in pieces:
            if isinstance(piece, ApiError):
                raise RequestError(piece)
            assert isinstance(piece, bytes)
            last = piece
            yield piece
    except EngineLostError as lost:
        raise RequestError(lost.error) from lost
    except DeadlineError:
        raise RequestError(errors.deadline_exceeded(request.deadline.seconds, longest_s)) from None
    finally:
        request.deadline.cancel()
        await pieces.aclose()
    if head.media_type == EVENT_STREAM and not last.endswith(sse.DONE):
        raise RequestError(errors.engine_failed("the stream broke off"))
