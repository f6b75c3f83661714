"""What kind of text an answer is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from cluster.messages.base import Message
from serve_app.bodies.fields import Name, Schema


class JsonSchema(Message):
    """A schema that an answer follows."""

    name: Name = Field(description="For people.")
    description: str | None = Field(None, description="For people.")
    schema_: Schema = Field(alias="schema", description="The JSON schema.")
    strict: bool | None = Field(None, strict=True, description="Changes nothing: an answer always follows the schema.")


class ResponseFormat(Message):
    """What kind of text an answer is."""

    type: Literal["text", "json_object", "json_schema"] = Field(description="Any text, any JSON object, or what a schema allows.")
    json_schema: JsonSchema | None = Field(None, description="The schema, for type json_schema.")

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("type json_schema needs a json_schema")
        return self
