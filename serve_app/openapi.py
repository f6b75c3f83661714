"""The application's OpenAPI document.

Routes read their bodies themselves, so that every error has OpenAI's format and an engine gets the client's own bytes. FastAPI
therefore does not know the schemas, and this module adds them.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from cluster.messages.answer import EVENT_STREAM
from cluster.messages.base import Message
from serve_app.headers import SESSION, TIMEOUT

_REFERENCE = "#/components/schemas/{model}"
_bodies: list[type[BaseModel]] = []


class ErrorDetail(Message):
    """What was wrong."""

    message: str = Field(description="What was wrong, and what to do.")
    type: str = Field(description="OpenAI's error type.")
    param: str | None = Field(description="The field at fault, if one is.")
    code: str | None = Field(description="OpenAI's error code, if it has one.")


class ErrorBody(Message):
    """An error in OpenAI's format."""

    error: ErrorDetail = Field(description="The error.")


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """Arguments for a route whose body is a `model`."""
    _bodies.append(model)
    content = {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": _errors(400, 401, 403, 413, 503),
    }


def answers(model: type[BaseModel]) -> dict[str, Any]:
    """Arguments for a route whose body is a `model` and that an engine answers."""
    arguments = takes(model)
    arguments["openapi_extra"]["parameters"] = [
        _header(TIMEOUT, {"type": "number", "exclusiveMinimum": 0}, "Seconds that the request may take."),
        _header(SESSION, {"type": "string"}, "Requests of one session go to the same engine, whose cache they share."),
    ]
    streamed = {EVENT_STREAM: {"schema": {"type": "string"}}}
    arguments["responses"] = {
        200: {"description": "OpenAI's answer", "content": {"application/json": {"schema": {"type": "object"}}, **streamed}},
        **_errors(400, 401, 404, 413, 429, 502, 503, 504),
    }
    return arguments


def install(app: FastAPI) -> None:
    """Let `app` describe the bodies that its routes read themselves."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _, schemas = models_json_schema([(model, "validation") for model in _bodies], ref_template=_REFERENCE)
            described.setdefault("components", {}).setdefault("schemas", {}).update(schemas.get("$defs", {}))
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": ErrorBody} for code in codes}


def _header(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description}
