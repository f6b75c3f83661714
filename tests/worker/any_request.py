"""Requests of every kind that the ingress lets through, for a property test."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from pydantic import ValidationError

from serve_app.bodies.routes import ROUTES
from tests.worker.bench import PROMPTS

_TEXTS = [json.loads(line)["prompt"] for line in PROMPTS.read_text().splitlines()[:24]]
_LONG = "\n\n".join(_TEXTS)[:4000]
_STOPS = ["\n", " ", "e", ".", "the", ")", "self", "\n\n", "is", ", ", ":", "re", "}", "<|"]
_REGEXES = [r"[a-z ]{1,60}", r"(yes|no)( and (yes|no)){0,6}", r"\d{3}-\d{4}", r"(def|class) [a-z_]+\(.*\):\n", r"[^e]*"]
_SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 12}},
        "required": ["a", "b"],
    },
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 5},
    {"enum": ["red", "green", "blue"]},
]
_TOOL = {"type": "function", "function": {"name": "find", "parameters": _SCHEMAS[0]}}


def _sometimes(values: st.SearchStrategy[Any], default: Any = None) -> st.SearchStrategy[Any]:
    """A default three times in four, so that most requests have a few fields alone."""
    return st.one_of(st.just(default), st.just(default), st.just(default), values)


_COMMON: dict[str, st.SearchStrategy[Any]] = {
    "frequency_penalty": _sometimes(st.sampled_from([0.3, 1.0, 2.0, -0.5, -2.0])),
    "presence_penalty": _sometimes(st.sampled_from([0.5, 2.0, -1.0])),
    "repetition_penalty": _sometimes(st.sampled_from([1.1, 1.5, 2.0, 0.7])),
    "min_tokens": _sometimes(st.integers(1, 30)),
    "logit_bias": _sometimes(st.dictionaries(st.integers(0, 2047).map(str), st.sampled_from([-100, -5, 3, 10]), max_size=4)),
    "stop": _sometimes(st.one_of(st.sampled_from(_STOPS), st.lists(st.sampled_from(_STOPS), min_size=1, max_size=4))),
    "stop_token_ids": _sometimes(st.lists(st.integers(0, 600), min_size=1, max_size=60)),
    "ignore_eos": _sometimes(st.just(True)),
    "no_stop_trim": _sometimes(st.just(True)),
    "skip_special_tokens": _sometimes(st.just(False)),
    "seed": _sometimes(st.integers(0, 9)),
    "n": _sometimes(st.integers(2, 3)),
}
_CONSTRAINTS = st.one_of(
    st.just({}),
    st.just({}),
    st.sampled_from(_REGEXES).map(lambda regex: {"regex": regex}),
    st.just({"response_format": {"type": "json_object"}}),
    st.sampled_from(_SCHEMAS).map(
        lambda schema: {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}
    ),
)
_GREEDY = st.sampled_from([{"temperature": 0}, {"temperature": 0}, {"temperature": 1, "top_k": 1}])
_SAMPLED = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.7, 1.0, 1.5]),
        "top_p": st.sampled_from([1.0, 0.8]),
        "top_k": st.sampled_from([-1, 4]),
        "min_p": st.sampled_from([0.0, 0.1]),
    }
)


@st.composite
def any_request(draw: st.DrawFn) -> tuple[str, dict[str, Any], bool]:
    """Route, body, and whether to stream. One in six samples; then its text is chance, but not what stands beside it."""
    route = draw(st.sampled_from(["completions", "completions", "chat/completions"]))
    body = {name: value for name, values in _COMMON.items() if (value := draw(values)) is not None}
    body |= draw(_SAMPLED if draw(st.integers(0, 5)) == 5 else _GREEDY)
    constraint = draw(_CONSTRAINTS)
    if route == "completions":
        text = st.one_of(st.sampled_from(_TEXTS), st.integers(1, len(_LONG)).map(lambda length: _LONG[:length]))
        ids = st.lists(st.integers(4, 2047), min_size=1, max_size=40)
        body["prompt"] = draw(st.one_of(text, text, ids, st.lists(text, min_size=1, max_size=2)))
        body["max_tokens"] = draw(st.integers(1, 40))
        # SGLang refuses the two of them together.
        body |= draw(_sometimes(st.sampled_from([{"logprobs": 0}, {"logprobs": 5}, {"echo": True}]), {}))
    else:
        body["messages"] = [{"role": "user", "content": draw(st.sampled_from(_TEXTS))[:400]}]
        body["max_tokens"] = draw(st.integers(1, 40))
        if draw(_sometimes(st.just(True), False)):
            body |= {"logprobs": True, "top_logprobs": draw(st.integers(0, 3))}
        if not constraint and draw(_sometimes(st.just(True), False)):
            named = {"type": "function", "function": {"name": "find"}}
            body |= {"tools": [_TOOL], "tool_choice": draw(st.sampled_from(["auto", "required", named]))}
    body |= constraint
    body = {name: value for name, value in body.items() if value is not None}
    try:
        ROUTES[route].model_validate(body)
    except ValidationError as error:
        raise AssertionError(f"the ingress refuses {body}") from error
    return route, body, draw(st.booleans())


def samples(body: dict[str, Any]) -> bool:
    """Whether its text is chance."""
    return bool(body["temperature"] and body.get("top_k") != 1)
