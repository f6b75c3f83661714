"""What is let through to an engine, and what is refused by which name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serve_app.bodies import pattern
from serve_app.bodies.chat import ChatRequest
from serve_app.bodies.completion import CompletionRequest
from serve_app.error_responses import RequestError, parse

PROMPT = {"prompt": "a"}
MESSAGES = {"messages": [{"role": "user", "content": "a"}]}


def read(body: dict[str, Any]) -> Any:
    return parse(ChatRequest if "messages" in body else CompletionRequest, json.dumps(body).encode())


@pytest.mark.parametrize(
    "body",
    [
        {
            **PROMPT,
            "model": "tiny",
            "max_tokens": 5,
            "temperature": 0,
            "stop": "x",
            "n": 3,
            "logprobs": 5,
            "echo": True,
            "seed": -1,
        },
        {"prompt": ["a", "b"], "stream": True, "stream_options": {"include_usage": True}},
        {"prompt": [1, 2, 3]},
        {**PROMPT, "best_of": 1},
        {**PROMPT, "regex": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        {**PROMPT, "regex": "\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}Z"},
        {
            "messages": [
                *MESSAGES["messages"],
                # What openai's client makes of an answer's message.
                {"role": "assistant", "content": "b", "refusal": None, "annotations": None, "audio": None, "function_call": None},
                *MESSAGES["messages"],
            ]
        },
        {"prompt": [[1, 2], [3]]},
        {**PROMPT, "regex": "[a-z]{1,40}", "user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
        {
            **MESSAGES,
            "max_completion_tokens": 5,
            "temperature": None,
            "logprobs": True,
            "top_logprobs": 5,
            "reasoning_effort": "low",
        },
        {**MESSAGES, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
        {**MESSAGES, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "required"},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
    ],
)
def test_what_openai_knows_is_let_through(body: dict[str, Any]) -> None:
    read(body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({**PROMPT, "nonsense": 1}, "nonsense"),
        ({**PROMPT, "lora_path": "x"}, "lora_path"),
        ({**PROMPT, "session_params": {}}, "session_params"),
        ({**PROMPT, "stop_regex": "(a+)+$"}, "stop_regex"),
        ({**PROMPT, "custom_logit_processor": "x"}, "custom_logit_processor"),
        ({**PROMPT, "n": 129}, "n"),
        ({"prompt": ["a"] * 20, "n": 20}, None),
        ({**PROMPT, "max_tokens": 2**40}, "max_tokens"),
        ({**PROMPT, "temperature": float("nan")}, "temperature"),
        ({**PROMPT, "logprobs": 10**6}, "logprobs"),
        ({**PROMPT, "logit_bias": {"-1": 1}}, "logit_bias.-1.[key]"),
        ({**PROMPT, "logit_bias": {"1": float("inf")}}, "logit_bias.1"),
        ({**PROMPT, "seed": 2**63}, "seed"),
        ({**PROMPT, "stop_token_ids": [-1]}, "stop_token_ids.0"),
        ({**PROMPT, "regex": "(a{1000}){1000}"}, "regex"),
        ({**PROMPT, "regex": "("}, "regex"),
        ({**MESSAGES, "response_format": {"type": "structural_tag"}}, "response_format.type"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "root", "content": "a"}]}, "messages.0"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]},
            "messages.0.user.content.list[TextPart].0.type",
        ),
        ({**MESSAGES, "chat_template_kwargs": {"a": {}}}, "chat_template_kwargs.a.bool"),
        ({**MESSAGES, "chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs"),
    ],
)
def test_what_an_engine_cannot_be_trusted_with_is_refused_by_name(body: dict[str, Any], param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        read(body)
    assert caught.value.error.status == 400
    assert caught.value.error.param == param


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(RequestError, match="Invalid JSON"):
        parse(CompletionRequest, b'{"prompt": "\\ud800"}')


def schema(**node: Any) -> dict[str, Any]:
    return {**MESSAGES, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": node}}}


def deep(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {}
    for _ in range(levels):
        node = {"items": node}
    return node


@pytest.mark.parametrize(
    "body",
    [
        schema(type="array", minItems=10**9),
        schema(type="string", pattern="((a{50}){50}){50}"),
        schema(type="string", pattern="(a{33}){32}"),
        schema(type="string", pattern="(a{600}|b{600})"),
        schema(type="string", pattern="[](a{99}){99}]"),
        schema(type="string", pattern="(?#[)(a{99}){99}(?#])"),
        schema(patternProperties={"(": {}}),
        schema(**deep(40)),
        schema(enum=["x" * 40_000]),
        {**MESSAGES, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"maxLength": 10**6}}}]},
    ],
)
def test_a_schema_that_could_explode_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        read(body)


@pytest.mark.parametrize(
    ("expression", "states"),
    [
        ("abc", 3),
        ("[a-z0-9]", 1),
        ("[^x]\\d.", 3),
        ("a*b+c?", 3),
        ("(abc){5}", 15),
        ("(abc){5,}", 15),
        ("(abc){0,5}?", 15),
        ("((ab){3}c){2}", 14),
        ("(?:ab){4}", 8),
        ("(?=ab)c", 3),
        ("(ab|cd)", 5),  # the bar counts
        ("(a|b|c){100}", 500),
        ("(abcd|abce){100}", 900),
        ("[|]{9}\\|{9}[\\]|]{9}", 27),
        ("", 1),
    ],
)
def test_how_many_states_a_pattern_unfolds_into(expression: str, states: int) -> None:
    assert pattern.count_states(expression) == states


def test_an_empty_group_behind_each_bar_does_not_make_a_wrong_pattern_right() -> None:
    with pytest.raises(ValueError, match="nothing to repeat"):
        pattern.check_pattern("a|*")


def test_how_many_answers_a_request_is() -> None:
    assert [read({**body, "n": 3}).samples for body in ({"prompt": ["a", "b"]}, {"prompt": [1, 2]}, MESSAGES)] == [6, 3, 3]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"prompt": "x" * 100 + "a"}, {"prompt": "x" * 100 + "b"}),
        ({"prompt": [7] * 100 + [1]}, {"prompt": [7] * 100 + [2]}),
        (
            {"messages": [{"role": "system", "content": "x" * 100}, {"role": "user", "content": "a"}]},
            {
                "messages": [
                    {"role": "system", "content": [{"type": "text", "text": "x" * 100}]},
                    {"role": "user", "content": "b"},
                ]
            },
        ),
    ],
)
def test_long_beginnings_that_are_alike_are_known(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert read(one).beginning(80) == read(other).beginning(80) is not None


def test_short_ones_are_not_held_together() -> None:
    assert read(PROMPT).beginning(80) is None
    assert read(MESSAGES).beginning(80) is None
