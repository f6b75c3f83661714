"""Variables that a client sets for the model's chat template."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from serve_app.bodies.fields import Finite, Name

RESERVED = {
    "conversation",
    "messages",
    "tools",
    "documents",
    "chat_template",
    "add_generation_prompt",
    "continue_final_message",
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "tokenizer_kwargs",
}
"""Arguments of the engine's own call of the template. The call fails on some of them, and others change what it returns."""


def _not_reserved(variables: dict[str, Any]) -> dict[str, Any]:
    if reserved := RESERVED & variables.keys():
        raise ValueError(f"{min(reserved)} is not a variable of a template")
    return variables


TemplateVariables = Annotated[dict[Name, bool | int | Finite | Name | None], AfterValidator(_not_reserved)]
