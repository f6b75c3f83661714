"""Errors in OpenAI's format."""

from __future__ import annotations

from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from cluster.messages import errors
from cluster.messages.errors import ApiError


class RequestError(Exception):
    """A request that cannot be answered. Raised to callers of the handle methods too."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(f"{error.status}: {error.message}")
        self.error = error

    def __reduce__(self) -> tuple[type[RequestError], tuple[ApiError]]:
        return type(self), (self.error,)


M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], body: bytes) -> M:
    """Read a body, whatever content type it claims.

    Raises:
        RequestError: naming the first field at fault.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise RequestError(errors.invalid_body(error)) from error


def render(error: ApiError) -> JSONResponse:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error.body(), error.status, headers)


def install(app: FastAPI) -> None:
    """Render every error of the application in OpenAI's format."""

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> JSONResponse:
        return render(error.error)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return render(errors.from_status(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> JSONResponse:
        """A bug: its traceback is in the replica's log, not in the answer."""
        return render(errors.from_status(500, f"{request.method} {request.url.path}: internal error"))
