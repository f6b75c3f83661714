"""Functions that the model may call."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cluster.messages.base import Message
from serve_app.bodies.fields import Name, Schema


class Function(Message):
    """A function that the model may call."""

    name: Name = Field(description="Its name.")
    description: str | None = Field(None, description="For the model: what it does.")
    parameters: Schema | None = Field(None, description="JSON schema of its arguments. Default: it has none.")
    strict: bool | None = Field(None, description="Whether arguments must follow the schema.")


class Tool(Message):
    """Something that the model may call."""

    type: Literal["function"] = Field("function", description="What it is.")
    function: Function = Field(description="The function.")


class NamedFunction(Message):
    """One of the request's functions."""

    name: Name = Field(description="Its name.")


class NamedTool(Message):
    """The tool that the model has to call."""

    type: Literal["function"] = Field("function", description="What it is.")
    function: NamedFunction = Field(description="The function.")
