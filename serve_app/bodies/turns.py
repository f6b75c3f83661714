"""The turns of a chat: what the model reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from cluster.messages.base import Message
from serve_app.bodies.fields import Name


class TextPart(Message):
    """A piece of a turn. Text only: an engine would fetch an image from whatever address it is given."""

    type: Literal["text"] = Field(description="What it is.")
    text: str = Field(description="The text.")


Content = str | Annotated[list[TextPart], Field(min_length=1, max_length=1024)]


class CalledFunction(Message):
    """What the model called."""

    name: Name = Field(description="Name of the function.")
    arguments: str | dict[str, Any] | None = Field(None, description="Its arguments, as JSON.")


class ToolCall(Message):
    """A call by the model, in one of its turns."""

    id: Name | None = Field(None, description="What the tool's turn refers to.")
    index: int | None = Field(None, ge=0, lt=2**31, description="Its position among the turn's calls.")
    type: Literal["function"] = Field("function", description="What was called.")
    function: CalledFunction = Field(description="The function and its arguments.")


class SpokenMessage(Message):
    """A turn of anybody but the model."""

    role: Literal["system", "developer", "user", "tool"] = Field(description="Whose turn it is.")
    content: Content = Field(description="The text.")
    name: Name | None = Field(None, description="Who speaks.")
    tool_call_id: Name | None = Field(None, description="Which call a tool's turn answers.")


class AssistantMessage(Message):
    """A turn of the model."""

    role: Literal["assistant"] = Field(description="Whose turn it is.")
    content: Content | None = Field(None, description="The text.")
    name: Name | None = Field(None, description="Who speaks.")
    tool_calls: list[ToolCall] | None = Field(None, max_length=128, description="What it called.")
    reasoning_content: str | None = Field(None, description="What it thought before.")
    refusal: str | None = Field(None, description="Why it did not answer.")
    # Clients send a model's turn back with all the fields that its answer had.
    annotations: None = Field(None, description="Not offered.")
    audio: None = Field(None, description="Not offered.")
    function_call: None = Field(None, description="Not offered; see `tool_calls`.")


Turn = Annotated[SpokenMessage | AssistantMessage, Field(discriminator="role")]
