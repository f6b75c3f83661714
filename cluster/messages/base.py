"""What all messages have in common.

A message crosses a process or comes from a user. Each is frozen and forbids unknown fields, so that two versions that
disagree fail loudly.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

DEEPEST = 16
"""The greatest depth that an engine may be configured for."""

Depth = Annotated[int, Field(ge=0, le=DEEPEST)]
BatchSize = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]


class Message(BaseModel):
    """Base of all that crosses a process or comes from a user."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Columns(Message):
    """A table; each field is a column, and all are equally long."""

    @model_validator(mode="after")
    def _equally_long(self) -> Columns:
        lengths = {name: len(column) for name, column in self}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must be equally long; got lengths {lengths}")
        return self
