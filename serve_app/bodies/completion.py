"""The body of `POST /v1/completions`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from serve_app.bodies.fields import Count, Text, TokenId
from serve_app.bodies.request import MAX_SAMPLES, MAX_TOKENS, MIN_P, REPETITION_PENALTY, TEMPERATURE, TOP_K, TOP_P, Request


class CompletionRequest(Request):
    """OpenAI's completion. Any field that is not listed is refused."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_SAMPLES)]
        | Annotated[list[TokenId], Field(min_length=1)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=MAX_SAMPLES)]
    ) = Field(description="One text or several, or their token ids.")
    max_tokens: Count = Field(16, description=MAX_TOKENS)
    temperature: float = Field(1.0, ge=0, le=2, description=TEMPERATURE)
    top_p: float = Field(1.0, gt=0, le=1, description=TOP_P)
    top_k: int = Field(-1, ge=-1, lt=2**31, description=TOP_K)
    min_p: float = Field(0.0, ge=0, le=1, description=MIN_P)
    repetition_penalty: float = Field(1.0, gt=0, le=2, description=REPETITION_PENALTY)
    logprobs: int | None = Field(
        None, ge=0, le=20, description="Log probabilities of this many of the likeliest tokens at each position."
    )
    best_of: Literal[1] | None = Field(None, description="More than 1 is not offered.")
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
