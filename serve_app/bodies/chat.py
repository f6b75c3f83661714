"""The body of `POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serve_app.bodies.fields import Count
from serve_app.bodies.request import MAX_TOKENS, MIN_P, REPETITION_PENALTY, TEMPERATURE, TOP_K, TOP_P, Request
from serve_app.bodies.template_variables import TemplateVariables
from serve_app.bodies.tools import NamedTool, Tool
from serve_app.bodies.turns import Turn


class ChatRequest(Request):
    """OpenAI's chat completion. Any field that is not listed is refused."""

    messages: list[Turn] = Field(min_length=1, max_length=4096, description="The turns so far.")
    max_tokens: Count | None = Field(None, description=f"{MAX_TOKENS} Default: what the context has room for.")
    max_completion_tokens: Count | None = Field(None, description="The newer name of `max_tokens`.")
    # The defaults of these are the model's own.
    temperature: float | None = Field(None, ge=0, le=2, description=TEMPERATURE)
    top_p: float | None = Field(None, gt=0, le=1, description=TOP_P)
    top_k: int | None = Field(None, ge=-1, lt=2**31, description=TOP_K)
    min_p: float | None = Field(None, ge=0, le=1, description=MIN_P)
    repetition_penalty: float | None = Field(None, gt=0, le=2, description=REPETITION_PENALTY)
    logprobs: bool = Field(False, description="Answer with the log probability of each token.")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="Also with those of this many of the likeliest tokens.")
    tools: list[Tool] | None = Field(None, max_length=128, description="What the model may call.")
    tool_choice: Literal["auto", "required", "none"] | NamedTool = Field(
        "auto", description="Whether it may, must or must not call one, or which one it must call."
    )
    parallel_tool_calls: bool = Field(True, description="Whether it may call several at once.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="How much to think, for models that do."
    )
    separate_reasoning: bool = Field(True, description="Put thoughts in a field of their own.")
    stream_reasoning: bool = Field(True, description="Stream thoughts too.")
    chat_template_kwargs: TemplateVariables | None = Field(
        None, max_length=32, description="Variables of the model's chat template."
    )

    def beginning(self, chars: int) -> str | None:
        read = ""
        for message in self.messages:
            content = message.content or ""
            text = content if isinstance(content, str) else "".join(part.text for part in content)
            read += f"{message.role}\n{text}\n"
            if len(read) >= chars:
                return read[:chars]
        return None
