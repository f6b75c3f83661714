"""What an engine answers to a client's request."""

from __future__ import annotations

from pydantic import Field

from cluster.messages.base import Message
from cluster.messages.errors import ApiError

EVENT_STREAM = "text/event-stream"
"""Content type of server-sent events."""


class ResponseHead(Message):
    """Comes before the body of an answer."""

    media_type: str = Field("application/json", description="Content type of the body.")


Piece = ResponseHead | ApiError | bytes
"""An answer is a head and then the body in pieces, or an error. An error may also follow a part of the body."""
