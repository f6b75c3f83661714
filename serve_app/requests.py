"""The bodies that are let through to an engine.

An engine trusts its clients: one odd number, a regular expression that explodes or an image from a `file://` address can
hang it, end it or read what it should not. So what may pass is listed here, with its bounds, and anything else is refused
by name, as OpenAI refuses it. The engine gets the client's own bytes; both sides read them with the same parser.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cluster.protocol import Message
from serve_app import grammar

MAX_SAMPLES = 128
"""Most answers of one request, as OpenAI has it: `n` for each prompt."""

Name = Annotated[str, Field(max_length=512)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Schema = Annotated[dict[str, Any], AfterValidator(grammar.check_schema)]
StopString = Annotated[str, Field(min_length=1, max_length=512)]


_OF_THE_ENGINE = {
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
"""Arguments of the engine's call of the template: it fails on some, and others are what it answers with."""


def _own_variables(variables: dict[str, Any]) -> dict[str, Any]:
    if taken := _OF_THE_ENGINE & variables.keys():
        raise ValueError(f"{min(taken)} is no variable of a template")
    return variables


TemplateVariables = Annotated[dict[Name, bool | int | Finite | Name | None], AfterValidator(_own_variables)]


class StreamOptions(Message):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class JsonSchema(Message):
    name: Name
    description: str | None = None
    schema_: Schema = Field(alias="schema")
    strict: bool | None = Field(None, strict=True)


class ResponseFormat(Message):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("type json_schema needs a json_schema")
        return self


class Request(Message):
    """What both routes have."""

    model: str | None = Field(None, description="Name of the served model.")
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=1024, description="Token id to bias."
    )
    n: int = Field(1, ge=1, le=MAX_SAMPLES, description="Answers for each prompt.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = None
    stream: bool = Field(False, description="Answer by server-sent events.")
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    user: Name | None = Field(None, description="Requests of one user go to the same engine, whose cache they share.")
    prompt_cache_key: Name | None = Field(None, description="Like `user`, and before it.")

    # OpenAI's fields that change nothing here.
    safety_identifier: Name | None = None
    store: bool | None = None
    metadata: dict[Name, Name] | None = Field(None, max_length=16)
    service_tier: Name | None = None

    # SGLang's.
    min_tokens: int = Field(0, ge=0, lt=2**31)
    regex: Annotated[str, AfterValidator(grammar.check_pattern)] | None = None
    stop_token_ids: list[TokenId] | None = Field(None, max_length=64)
    no_stop_trim: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    return_cached_tokens_details: bool = False
    return_spec_tokens_details: bool = False

    @property
    def samples(self) -> int:
        """How many answers the engine works on."""
        return self.n

    @property
    def session(self) -> str | None:
        return self.prompt_cache_key or self.user

    def beginning(self, chars: int) -> str | None:
        """The first `chars` characters of what the model reads; None if it is shorter."""
        raise NotImplementedError


class CompletionRequest(Request):
    """OpenAI's completion. Fields that it does not list are refused."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_SAMPLES)]
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=MAX_SAMPLES)]
    )
    max_tokens: Count = 16
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1, lt=2**31)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=2)
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool = False

    @model_validator(mode="after")
    def _not_too_many(self) -> CompletionRequest:
        if self.samples > MAX_SAMPLES:
            raise ValueError(f"n: {self.n} answers for each prompt are more than {MAX_SAMPLES} in all")
        return self

    @property
    def samples(self) -> int:
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return self.n * len(self.prompt) if several else self.n

    def beginning(self, chars: int) -> str | None:
        first = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        if isinstance(first, int):
            first = " ".join(map(str, self.prompt[:chars]))
        elif isinstance(first, list):
            first = " ".join(map(str, first[:chars]))
        return first[:chars] if len(first) >= chars else None


class TextPart(Message):
    type: Literal["text"]
    text: str


class CalledFunction(Message):
    name: Name
    arguments: str | dict[str, Any] | None = None


class ToolCall(Message):
    id: Name | None = None
    index: int | None = Field(None, ge=0, lt=2**31)
    type: Literal["function"] = "function"
    function: CalledFunction


class SpokenMessage(Message):
    """A turn that the model reads. Text only: an engine would fetch an image from whatever address it is given."""

    role: Literal["system", "developer", "user", "tool"]
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=1024)]
    name: Name | None = None
    tool_call_id: Name | None = None


class AssistantMessage(Message):
    """A turn of the model."""

    role: Literal["assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=1024)] | None = None
    name: Name | None = None
    tool_calls: list[ToolCall] | None = Field(None, max_length=128)
    reasoning_content: str | None = None
    refusal: str | None = None


class Function(Message):
    name: Name
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class Tool(Message):
    type: Literal["function"] = "function"
    function: Function


class NamedFunction(Message):
    name: Name


class NamedTool(Message):
    type: Literal["function"] = "function"
    function: NamedFunction


class ChatRequest(Request):
    """OpenAI's chat completion. Fields that it does not list are refused."""

    messages: list[Annotated[SpokenMessage | AssistantMessage, Field(discriminator="role")]] = Field(
        min_length=1, max_length=4096
    )
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=2)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = Field(None, max_length=128)
    tool_choice: Literal["auto", "required", "none"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    separate_reasoning: bool = True
    stream_reasoning: bool = True
    chat_template_kwargs: TemplateVariables | None = Field(None, max_length=32)

    def beginning(self, chars: int) -> str | None:
        read = ""
        for message in self.messages:
            content = message.content or ""
            text = content if isinstance(content, str) else "".join(part.text for part in content)
            read += f"{message.role}\n{text}\n"
            if len(read) >= chars:
                return read[:chars]
        return None


ROUTES: dict[str, type[Request]] = {"chat/completions": ChatRequest, "completions": CompletionRequest}
