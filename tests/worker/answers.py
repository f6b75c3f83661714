"""Asks an engine as the ingress does, and says what has to be the same in two answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from cluster.messages.answer import ResponseHead
from cluster.messages.errors import ApiError
from tests.worker.bench import Bench

LOGPROB_TOLERANCE = 1e-4
"""Log probabilities are from float32 logits that are the same bit for bit; the sums of their softmax need not be."""


@dataclass
class Choice:
    """One answer of a request."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish: tuple[Any, Any] | None = None  # the reason, and which stop it was
    token_ids: list[int] | None = None  # a stream has none
    logprobs: list[Any] = field(default_factory=list)  # for each token: what it is, its own, those of the likeliest

    def visible(self) -> tuple[Any, ...]:
        return self.text, self.reasoning, self.calls, self.finish


@dataclass
class Answer:
    """A whole answer, however it came."""

    error: str = ""
    choices: dict[int, Choice] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)

    def difference(self, other: Answer) -> str | None:
        """In what this differs from another answer to the same request; None if in nothing that a client relies on."""
        for what, mine, theirs in [
            ("error", self.error, other.error),
            ("usage", self.usage, other.usage),
            ("choices", sorted(self.choices), sorted(other.choices)),
        ]:
            if mine != theirs:
                return f"{what}: {mine!r} and {theirs!r}"
        for index, choice in self.choices.items():
            theirs = other.choices[index]
            if choice.visible() != theirs.visible():
                return f"choice {index}: {choice.visible()!r} and {theirs.visible()!r}"
            if None not in (choice.token_ids, theirs.token_ids) and choice.token_ids != theirs.token_ids:
                return f"choice {index}: tokens {choice.token_ids} and {theirs.token_ids}"
            if not _alike(choice.logprobs, theirs.logprobs):
                return f"choice {index}: logprobs {choice.logprobs} and {theirs.logprobs}"
        return None


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= LOGPROB_TOLERANCE * max(1, abs(a))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b)


async def ask(b: Bench, route: str, body: dict[str, Any], stream: bool = False) -> Answer:
    """Send a request to the engine, and read its answer to the end."""
    how = {"stream": True, "stream_options": {"include_usage": True}} if stream else {"return_token_ids": True}
    answer = Answer()
    text = ""
    async for piece in b.face.respond(route, json.dumps({**body, **how}).encode()):
        if isinstance(piece, ApiError):
            answer.error = f"{piece.status}: {piece.message}"
        elif not isinstance(piece, ResponseHead):
            text += piece.decode()
    if answer.error:
        # How much of a stream came before its error is chance.
        return Answer(error=answer.error)
    events = [event.removeprefix("data: ") for event in text.split("\n\n") if event] if stream else [text]
    assert not stream or events.pop() == "[DONE]"
    for event in events:
        _read(answer, json.loads(event))
    return answer


def _read(answer: Answer, body: dict[str, Any]) -> None:
    answer.ids.add(body["id"])
    if usage := body.get("usage"):
        answer.usage = {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens") if name in usage}
    for part in body["choices"]:
        choice = answer.choices.setdefault(part["index"], Choice())
        said = part.get("message") or part.get("delta") or {}
        choice.text += part.get("text") or said.get("content") or ""
        choice.reasoning += said.get("reasoning_content") or ""
        for i, call in enumerate(said.get("tool_calls") or ()):
            known = choice.calls.setdefault(call["index"] if call.get("index") is not None else i, {"name": "", "arguments": ""})
            known["name"] += call["function"].get("name") or ""
            known["arguments"] += call["function"].get("arguments") or ""
        if part.get("finish_reason"):
            choice.finish = part["finish_reason"], part.get("matched_stop")
        ids = part.get("token_ids", said.get("response_token_ids"))
        choice.token_ids = ids if ids is not None else choice.token_ids
        choice.logprobs += _logprobs(part.get("logprobs"))


def _logprobs(given: dict[str, Any] | None) -> list[Any]:
    if not given:
        return []
    if given.get("content") is not None:  # of a chat
        return [
            (token["token"], token["logprob"], [(top["token"], top["logprob"]) for top in token["top_logprobs"]])
            for token in given["content"]
        ]
    tops = given.get("top_logprobs") or [None] * len(given["tokens"])
    return [
        (token, logprob, sorted((top or {}).items()))
        for token, logprob, top in zip(given["tokens"], given["token_logprobs"], tops, strict=True)
    ]


async def ask_together(b: Bench, requests: Sequence[tuple[str, dict[str, Any], bool]], depths: Sequence[int]) -> list[Answer]:
    """Send requests (route, body, whether to stream) at once, at one depth, or while it goes round several every few steps."""
    await b.depth(depths[0])
    asked = asyncio.gather(*(ask(b, *request) for request in requests))
    if len(depths) > 1:
        for depth in cycle(depths):
            await b.depth(depth)
            await asyncio.wait((asked,), timeout=0.04)
            if asked.done():
                break
    return await asked
