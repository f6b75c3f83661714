"""What an engine answers to a client's request."""

from __future__ import annotations

from pydantic import Field, ValidationError

from cluster.messages.base import Message

EVENT_STREAM = "text/event-stream"
"""Content type of server-sent events."""


class ResponseHead(Message):
    """First item of an engine's answer to a request; the body follows as bytes. An error comes as an `ApiError` instead."""

    media_type: str = Field("application/json", description="Content type of the body.")


class ApiError(Message):
    """An error in OpenAI's shape, answered instead of a response."""

    status: int = Field(ge=400, le=599, description="HTTP status.")
    message: str = Field(description="What was wrong, and what to do.")
    type: str = Field("invalid_request_error", description="OpenAI's error type.")
    param: str | None = Field(None, description="The field at fault, if one is.")
    code: str | None = Field(None, description="OpenAI's error code, if it has one.")
    retry_after_s: int | None = Field(None, ge=1, description="After how long to try again, in seconds: the header Retry-After.")

    @classmethod
    def from_validation(cls, error: ValidationError) -> ApiError:
        """What is wrong with a body, and where: the first of those that lie deepest, which of a union is the likely one."""
        first = max(error.errors(include_url=False, include_input=False), key=lambda found: len(found["loc"]))
        field = ".".join(str(part) for part in first["loc"])
        return cls(status=400, message=f"{field or 'body'}: {first['msg']}", param=field or None)

    def body(self) -> dict[str, dict[str, str | None]]:
        return {"error": self.model_dump(exclude={"status", "retry_after_s"})}
