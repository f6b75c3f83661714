"""What the bodies of all routes have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from cluster.messages.base import Message
from serve_app.bodies.fields import Name, TokenId
from serve_app.bodies.pattern import check_pattern
from serve_app.bodies.response_format import ResponseFormat

MAX_SAMPLES = 128
"""Most answers of one request (`n` for each prompt), as at OpenAI."""

# Both routes have these fields, with defaults of their own.
MAX_TOKENS = "Most tokens of an answer."
TEMPERATURE = "0 takes the likeliest token; higher values make others likelier."
TOP_P = "Sample from the likeliest tokens that have this probability together."
TOP_K = "Sample from this many of the likeliest tokens; -1 is all."
MIN_P = "Sample from tokens that have at least this share of the likeliest one's probability."
REPETITION_PENALTY = "Divides the logits of tokens that occurred."

StopString = Annotated[str, Field(min_length=1, max_length=512)]
TokenIdText = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]


class StreamOptions(Message):
    """What a stream holds beside its text."""

    include_usage: bool | None = Field(False, description="Token counts in a last event of their own.")
    continuous_usage_stats: bool | None = Field(False, description="SGLang's: token counts so far in each event.")


class Request(Message):
    """What the bodies of all routes have in common."""

    model: str | None = Field(None, description="Name of the served model.")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="Taken from a token's logit for each time that it occurred.")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Taken from a token's logit if it occurred.")
    logit_bias: dict[TokenIdText, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=1024, description="What to add to logits, by token id."
    )
    n: int = Field(1, ge=1, le=MAX_SAMPLES, description="Answers for each prompt.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Seed of sampling, in SGLang's deterministic mode.")
    stop: StopString | Annotated[list[StopString], Field(max_length=16)] | None = Field(
        None, description="Texts that end an answer, and are not in it."
    )
    stream: bool = Field(False, description="Answer by server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="What a stream holds beside its text.")
    response_format: ResponseFormat | None = Field(None, description="What kind of text an answer is. Default: any.")
    user: Name | None = Field(None, description="Requests of one user go to the same engine and share its cache.")
    prompt_cache_key: Name | None = Field(None, description="Like `user`, and used before it.")

    safety_identifier: Name | None = Field(None, description="Changes nothing here.")
    store: bool | None = Field(None, description="Changes nothing here.")
    metadata: dict[Name, Name] | None = Field(None, max_length=16, description="Changes nothing here.")
    service_tier: Name | None = Field(None, description="Changes nothing here.")

    # SGLang's.
    min_tokens: int = Field(0, ge=0, lt=2**31, description="An answer does not end before it has this many tokens.")
    regex: Annotated[str, AfterValidator(check_pattern)] | None = Field(
        None, description="Regular expression that the whole answer matches."
    )
    stop_token_ids: list[TokenId] | None = Field(None, max_length=64, description="Tokens that end an answer.")
    no_stop_trim: bool = Field(False, description="Keep in the answer what ended it.")
    ignore_eos: bool = Field(False, description="Go on to `max_tokens`, past the model's own end of text.")
    skip_special_tokens: bool = Field(True, description="Leave special tokens out of the text.")

    @property
    def samples(self) -> int:
        """How many answers the engine works on."""
        return self.n

    def affinity(self, session: str | None, chars: int) -> bytes | None:
        """Equal for requests whose prefixes one engine may have cached: those of one session, or those that begin with the same
        `chars` characters. None for a shorter request without a session."""
        if named := session or self.prompt_cache_key or self.user:
            return b"session:" + named.encode()
        beginning = self.beginning(chars)
        return None if beginning is None else b"prefix:" + beginning.encode()

    def beginning(self, chars: int) -> str | None:
        """The first `chars` characters of what the model reads; None if it is shorter."""
        raise NotImplementedError
