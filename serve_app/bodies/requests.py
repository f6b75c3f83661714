"""The bodies that are let through to an engine.

An engine trusts its clients: one odd number, a regular expression that explodes or an image from a `file://` address can
hang it, end it or read what it should not. So what may pass is listed here, with its bounds, and anything else is refused
by name, as OpenAI refuses it. The engine gets the client's own bytes; both sides read them with the same parser.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cluster.messages.base import Message
from serve_app.bodies import grammar

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
    """What a stream tells beside its text."""

    include_usage: bool | None = Field(False, description="Token counts in a last event of their own.")
    continuous_usage_stats: bool | None = Field(False, description="SGLang's: token counts so far in each event.")


class JsonSchema(Message):
    """A schema that an answer is to follow."""

    name: Name = Field(description="For people.")
    description: str | None = Field(None, description="For people.")
    schema_: Schema = Field(alias="schema", description="The JSON schema.")
    strict: bool | None = Field(None, strict=True, description="An answer always follows the schema, whatever this says.")


class ResponseFormat(Message):
    """What kind of text an answer is."""

    type: Literal["text", "json_object", "json_schema"] = Field(description="Any text, any JSON object, or what a schema allows.")
    json_schema: JsonSchema | None = Field(None, description="The schema, for type json_schema.")

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("type json_schema needs a json_schema")
        return self


_MAX_TOKENS = "Most tokens of an answer."
_TEMPERATURE = "0 takes the likeliest token; what is above makes others likelier."
_TOP_P = "Sample from the likeliest tokens that have this probability together."
_TOP_K = "Sample from so many likeliest tokens; -1 is all."
_MIN_P = "Sample from tokens that have at least this part of the likeliest one's probability."
_REPETITION = "Divides the logits of tokens that occurred."


class Request(Message):
    """What both routes have."""

    model: str | None = Field(None, description="Name of the served model.")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="Taken from a token's logit for each time that it occurred.")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Taken from a token's logit if it occurred.")
    logit_bias: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=1024, description="What to add to logits, by token id."
    )
    n: int = Field(1, ge=1, le=MAX_SAMPLES, description="Answers for each prompt.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Of sampling, in SGLang's deterministic mode.")
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = Field(
        None, description="Texts that end an answer, and are not in it."
    )
    stream: bool = Field(False, description="Answer by server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="What a stream tells beside its text.")
    response_format: ResponseFormat | None = Field(None, description="What kind of text an answer is. Default: any.")
    user: Name | None = Field(None, description="Requests of one user go to the same engine, whose cache they share.")
    prompt_cache_key: Name | None = Field(None, description="Like `user`, and before it.")

    safety_identifier: Name | None = Field(None, description="Changes nothing here.")
    store: bool | None = Field(None, description="Changes nothing here.")
    metadata: dict[Name, Name] | None = Field(None, max_length=16, description="Changes nothing here.")
    service_tier: Name | None = Field(None, description="Changes nothing here.")

    # SGLang's.
    min_tokens: int = Field(0, ge=0, lt=2**31, description="An answer does not end before it has so many tokens.")
    regex: Annotated[str, AfterValidator(grammar.check_pattern)] | None = Field(
        None, description="Regular expression that the whole answer matches."
    )
    stop_token_ids: list[TokenId] | None = Field(None, max_length=64, description="Tokens that end an answer.")
    no_stop_trim: bool = Field(False, description="Leave what ended an answer in it.")
    ignore_eos: bool = Field(False, description="Go on to `max_tokens`, past the model's own end of text.")
    skip_special_tokens: bool = Field(True, description="Leave special tokens out of the text.")

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
    ) = Field(description="One text or several, or their token ids.")
    max_tokens: Count = Field(16, description=_MAX_TOKENS)
    temperature: float = Field(1.0, ge=0, le=2, description=_TEMPERATURE)
    top_p: float = Field(1.0, gt=0, le=1, description=_TOP_P)
    top_k: int = Field(-1, ge=-1, lt=2**31, description=_TOP_K)
    min_p: float = Field(0.0, ge=0, le=1, description=_MIN_P)
    repetition_penalty: float = Field(1.0, gt=0, le=2, description=_REPETITION)
    logprobs: int | None = Field(None, ge=0, le=20, description="Log probabilities of so many likeliest tokens at each position.")
    best_of: Literal[1] | None = Field(None, description="More than one is not offered.")
    echo: bool = Field(False, description="Answer with the prompt before the text.")

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
    """A piece of a turn."""

    type: Literal["text"] = Field(description="What it is.")
    text: str = Field(description="The text.")


class CalledFunction(Message):
    """What the model called."""

    name: Name = Field(description="Name of the function.")
    arguments: str | dict[str, Any] | None = Field(None, description="Its arguments, as JSON.")


class ToolCall(Message):
    """A call by the model, in a turn of its own."""

    id: Name | None = Field(None, description="What the tool's turn refers to.")
    index: int | None = Field(None, ge=0, lt=2**31, description="Its place among the turn's calls.")
    type: Literal["function"] = Field("function", description="What was called.")
    function: CalledFunction = Field(description="The function and its arguments.")


class SpokenMessage(Message):
    """A turn that the model reads. Text only: an engine would fetch an image from whatever address it is given."""

    role: Literal["system", "developer", "user", "tool"] = Field(description="Whose turn it is.")
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=1024)] = Field(description="The text.")
    name: Name | None = Field(None, description="Who speaks.")
    tool_call_id: Name | None = Field(None, description="Which call a tool's turn answers.")


class AssistantMessage(Message):
    """A turn of the model."""

    role: Literal["assistant"] = Field(description="Whose turn it is.")
    content: str | Annotated[list[TextPart], Field(min_length=1, max_length=1024)] | None = Field(None, description="The text.")
    name: Name | None = Field(None, description="Who speaks.")
    tool_calls: list[ToolCall] | None = Field(None, max_length=128, description="What it called.")
    reasoning_content: str | None = Field(None, description="What it thought before.")
    refusal: str | None = Field(None, description="Why it did not answer.")
    # Clients send a model's turn back with all the fields that its answer had.
    annotations: None = Field(None, description="Not offered.")
    audio: None = Field(None, description="Not offered.")
    function_call: None = Field(None, description="Not offered; see `tool_calls`.")


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


class ChatRequest(Request):
    """OpenAI's chat completion. Fields that it does not list are refused."""

    messages: list[Annotated[SpokenMessage | AssistantMessage, Field(discriminator="role")]] = Field(
        min_length=1, max_length=4096, description="The turns so far."
    )
    max_tokens: Count | None = Field(None, description=f"{_MAX_TOKENS} Default: what the context has room for.")
    max_completion_tokens: Count | None = Field(None, description="The newer name of `max_tokens`.")
    # Of those that sample, the model's own defaults hold.
    temperature: float | None = Field(None, ge=0, le=2, description=_TEMPERATURE)
    top_p: float | None = Field(None, gt=0, le=1, description=_TOP_P)
    top_k: int | None = Field(None, ge=-1, lt=2**31, description=_TOP_K)
    min_p: float | None = Field(None, ge=0, le=1, description=_MIN_P)
    repetition_penalty: float | None = Field(None, gt=0, le=2, description=_REPETITION)
    logprobs: bool = Field(False, description="Answer with the log probability of each token.")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="And with those of so many likeliest ones.")
    tools: list[Tool] | None = Field(None, max_length=128, description="What the model may call.")
    tool_choice: Literal["auto", "required", "none"] | NamedTool = Field(
        "auto", description="Whether it may, has to or must not call one, or which one it has to call."
    )
    parallel_tool_calls: bool = Field(True, description="Whether it may call several at once.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="For models that think: how much."
    )
    separate_reasoning: bool = Field(True, description="Answer with thoughts in a field of their own.")
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


ROUTES: dict[str, type[Request]] = {"chat/completions": ChatRequest, "completions": CompletionRequest}
