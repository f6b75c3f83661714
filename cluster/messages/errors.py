"""The catalogue of errors: one function for each `code` that a client can get, and the plain ones that have no code.

README's table lists the same codes; a test compares the two.
"""

from __future__ import annotations

import math

from pydantic import Field, ValidationError

from cluster.messages.base import Message

NO_ENGINE_RETRY_S = 5
"""When to try again while no engine serves, in seconds. A start takes longer, but another engine may be back sooner."""


class ApiError(Message):
    """An error in OpenAI's shape, answered instead of a response."""

    status: int = Field(ge=400, le=599, description="HTTP status.")
    message: str = Field(description="What was wrong, and what to do.")
    type: str = Field("invalid_request_error", description="OpenAI's error type.")
    param: str | None = Field(None, description="The field at fault, if there is one.")
    code: str | None = Field(None, description="OpenAI's error code, or one of README's table. Default: none.")
    retry_after_s: int | None = Field(None, ge=1, description="When to try again, in seconds: the header Retry-After.")

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON body that OpenAI's clients expect."""
        return {"error": self.model_dump(exclude={"status", "retry_after_s"})}


def invalid_field(message: str, param: str | None = None) -> ApiError:
    """400: a field is wrong, unknown or out of bounds."""
    return ApiError(status=400, message=message, param=param)


def invalid_body(error: ValidationError) -> ApiError:
    """400 for the error that lies deepest in the body: for a union, this is the alternative that the client most likely meant."""
    deepest = max(error.errors(include_url=False, include_input=False), key=lambda found: len(found["loc"]))
    field = ".".join(str(part) for part in deepest["loc"])
    return invalid_field(f"{field or 'body'}: {deepest['msg']}", field or None)


def from_status(status: int, message: str, param: str | None = None) -> ApiError:
    """An error of which only the HTTP status is known, such as one of SGLang's or Starlette's."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return ApiError(status=status, message=message, type=kind, param=param)


def invalid_api_key(message: str) -> ApiError:
    """401: there is no key, or a wrong one."""
    return ApiError(status=401, message=message, code="invalid_api_key")


def insufficient_permissions(method: str, path: str) -> ApiError:
    """403: a client's key where an admin's is needed."""
    return ApiError(status=403, message=f"{method} {path} needs an admin key", code="insufficient_permissions")


def model_not_found(asked: str, served: str) -> ApiError:
    """404: the fleet serves another model."""
    message = f"model: there is no {asked!r} here; this fleet serves {served!r}"
    return ApiError(status=404, message=message, param="model", code="model_not_found")


def request_too_large(limit: int) -> ApiError:
    """413: the body has more than `limit` bytes."""
    return ApiError(status=413, message=f"the body is larger than {limit} bytes", code="request_too_large")


def fleet_full(waited_s: float) -> ApiError:
    """429: no engine had room for the request within `waited_s` seconds."""
    message = f"all engines are full, and none had room within {waited_s:g} s; try again later"
    return ApiError(
        status=429, message=message, type="rate_limit_error", code="fleet_full", retry_after_s=max(1, math.ceil(waited_s))
    )


def engine_lost(engine: str) -> ApiError:
    """502: the engine, or the connection to it, ended during the answer."""
    message = f"engine {engine} was lost while it answered; send the request again"
    return ApiError(status=502, message=message, type="server_error", code="engine_lost")


def engine_failed(message: str) -> ApiError:
    """502: the engine could not finish this request."""
    return ApiError(status=502, message=message, type="server_error", code="engine_failed")


def no_engine(message: str) -> ApiError:
    """503: no engine, or not this one, takes requests at the moment."""
    return ApiError(status=503, message=message, type="server_error", code="no_engine", retry_after_s=NO_ENGINE_RETRY_S)


def deadline_exceeded(seconds: float, longest_s: float) -> ApiError:
    """504: the request's time, in seconds, is over. It may ask for up to `longest_s`."""
    message = f"not answered within {seconds:g} s; X-Request-Timeout may ask for up to {longest_s:g} s"
    return ApiError(status=504, message=message, type="server_error", code="deadline_exceeded")
