"""Bodies that no client should send: valid ones with something odd put in, and bytes that are no body at all."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

COMPLETION: dict[str, Any] = {
    "model": "tiny",
    "prompt": "def main():",
    "max_tokens": 2,
    "temperature": 0.5,
    "top_p": 0.9,
    "n": 1,
    "stop": ["\n\n"],
    "logprobs": 1,
    "logit_bias": {"5": -1.0},
    "seed": 7,
    "user": "someone",
    "stream_options": None,
    "presence_penalty": 0.1,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 2,
    "temperature": 0.5,
    "top_p": 0.9,
    "n": 1,
    "stop": ["\n\n"],
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"5": -1.0},
    "seed": 7,
    "tools": [TOOL],
    "tool_choice": "auto",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {
            "role": "assistant",
            "content": "Hi",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "3", "tool_call_id": "1"},
        {"role": "user", "content": "And now?"},
    ],
}

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    0.0,
    -0.5,
    1e-9,
    1e9,
    1e308,
    2**31 - 1,
    2**31,
    -(2**31),
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    " ",
    "a",
    "0",
    "-1",
    "nan",
    "true",
    "null",
    "\x00",
    "\ud800",
    "\udfff\ud800",
    "\ufeff",
    "\u202e",
    "é" * 300,
    "\U0001f600" * 50,
    "x" * 20_000,
    "../../etc/passwd",
    "file:///etc/passwd",
    "http://169.254.169.254/",
    "{{7*7}}",
    "{% for i in range(10**9) %}x{% endfor %}",
    "<|im_start|>system",
    "</s>",
    "'; drop table x",
    "%s%n%x",
    "$(reboot)",
    "tiny:adapter",
    [],
    [[]],
    [None],
    [1, "a"],
    [-1],
    [2**31],
    [2**63],
    [10**6],
    [0],
    ["a"] * 1000,
    [[0], [1]],
    [0] * 1000,
    list(range(50)),
    {},
    {"": ""},
    {"a": {}},
    {"type": "text"},
    {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    {"$ref": "#"},
    {"-1": 1},
    {"5": "a"},
    {"99999999": 1},
    {"1e3": 1},
    {"5": float("nan")},
    {"5": 1e300},
)

PATTERNS = (
    "(a+)+$",
    "(a{1000}){1000}",
    "((a{50}){50}){50}",
    "[",
    "(?=a)",
    "(a)\\1",
    "\\",
    "(?P<a",
    "a{99999999999}",
    "(" * 400,
    ".*" * 200,
    "[^\x00]*",
    "(a|b|c){60}",
    "\\p{L}+",
    "a{5,2}",
    "",
    "(?i)x",
    "a++",
    "\\ud800",
    "\U0001f600*",
)


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


SCHEMAS: tuple[Any, ...] = (
    {"$ref": "#"},
    {"$ref": "http://x/y"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"anyOf": [{"$ref": "#"}]},
    {"enum": []},
    {"type": "frob"},
    {"type": 7},
    {"type": ["string", 7]},
    {"properties": 3},
    {"type": "object", "properties": {"a": 3}},
    {"items": [1]},
    {"type": "array", "minItems": 10**9},
    {"type": "array", "items": {"type": "array", "minItems": 1000}, "minItems": 1000},
    {"type": "string", "pattern": "(a{1000}){1000}"},
    {"type": "string", "minLength": 10**6},
    {"type": "integer", "minimum": 5, "maximum": 1},
    {"type": "integer", "minimum": -(10**40), "maximum": 10**40},
    {"type": "number", "multipleOf": 0},
    {"type": "string", "format": "nope"},
    {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(300)}},
    _deep(5),
    _deep(20),
    _deep(150),
    {"const": "\x00"},
    True,
    3,
    {"type": "object", "patternProperties": {"(": {}}},
    {"not": {}},
    {"allOf": [{"type": "string"}, {"type": "integer"}]},
    {"enum": [None, {"a": [1]}]},
)

EXTENSIONS: dict[str, tuple[Any, ...]] = {
    "min_tokens": (5, -1, 2**40),
    "top_k": (0, -2, 1, 2**40),
    "min_p": (0.5, 2),
    "repetition_penalty": (0, 1.1, 9),
    "regex": PATTERNS,
    "ebnf": ("root ::= root", 'root ::= "a"'),
    "stop_regex": PATTERNS,
    "stop_token_ids": ([1], [-1], [2**40], [10**6]),
    "ignore_eos": (True,),
    "skip_special_tokens": (False,),
    "lora_path": ("x", ["x"]),
    "session_id": ("x",),
    "session_params": ({"id": "x"}, {"id": None, "rid": 3, "offset": -1, "replace": True}),
    "custom_params": ({"thinking_budget": -1},),
    "custom_logit_processor": ("gAR9lC4=", '{"callable": "80049"}'),
    "watermark": ({"key": "x"},),
    "images_config": ({"a": 1},),
    "rid": ("x", ["x", "x"]),
    "input_ids": ([1, 2], [-1]),
    "input_embeds": ([[0.1]],),
    "priority": (1,),
    "extra_key": ("x",),
    "cache_salt": ("x",),
    "return_hidden_states": (True,),
    "return_routed_experts": (True,),
    "bootstrap_host": ("169.254.169.254",),
    "bootstrap_room": (1,),
    "routed_dp_rank": (7,),
    "data_parallel_rank": (7,),
    "best_of": (5,),
    "suffix": ("x",),
    "echo": (True,),
    "logprobs": (20, 10**6, -1),
    "top_logprobs": (20, 10**6),
    "n": (4, 129, 10**9),
    "stream": (True,),
    "response_format": (
        {"type": "json_object"},
        {"type": "json_schema"},
        {"type": "structural_tag", "structures": [], "triggers": []},
        {"type": "text"},
        {"type": 1},
        *({"type": "json_schema", "json_schema": {"name": "s", "schema": schema}} for schema in SCHEMAS),
    ),
    "tools": tuple([{"type": "function", "function": {"name": "f", "parameters": schema}}] for schema in SCHEMAS),
    "tool_choice": (
        "required",
        "none",
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "function": {"name": "g"}},
        "any",
    ),
    "chat_template_kwargs": (
        {"tools": 1},
        {"add_generation_prompt": False},
        {"messages": "x"},
        {"tokenize": False},
        {"chat_template": "{{ 1/0 }}"},
        {"enable_thinking": True},
    ),
    "reasoning_effort": ("high", 0.5, "no"),
    "continue_final_message": (True,),
    "thinking": ({"type": "x"},),
    "task": ("action",),
    "modalities": (["audio"],),
    "functions": ([{"name": "f"}],),
    "json_schema": ('{"type": "frob"}', "{"),
    "stream_options": ({"include_usage": True}, {"include_usage": 3}, {"x": 1}),
    "metadata": ({"a": "b"}, {"a": 1}),
    "max_completion_tokens": (0, 1, -1, 2**40),
    "mm_processor_kwargs": ({"a": 1},),
    "separate_reasoning": (False,),
}

RAW: tuple[bytes, ...] = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"\xff\xfe\x00",
    b"\x00" * 64,
    b"{}" * 10,
    b'{"model": "tiny"',
    b'"tiny"',
    b"1" * 5000,
    b'{"prompt": "a", "prompt": "b", "max_tokens": 1}',
    b'{"prompt": "a", "max_tokens": 1e400}',
    b'{"prompt": "a", "max_tokens": 01}',
    b"\xef\xbb\xbf{}",
    b'{"prompt": "\xff"}',
    b'{"prompt": "\\ud800"}',
    b'{"messages": [{"role": "user", "content": "\\udc00"}]}',
    b"{'prompt': 'a'}",
    b'{"prompt": "a", "max_tokens": ' + b"9" * 4000 + b"}",
    b"<xml/>",
    b"prompt=a&max_tokens=1",
    b"--x\r\n",
)


class Hostile:
    """An endless, reproducible supply of bodies."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ways: tuple[Callable[[dict[str, Any]], None], ...] = (
            self._extend,
            self._replace,
            self._replace,
            self._remove,
            self._wrap,
            self._rename,
        )

    def next(self) -> tuple[str, bytes]:
        """A route and a body for it."""
        chance = self._random
        route = chance.choice(["completions", "chat/completions"])
        if chance.random() < 0.05:
            return f"/v1/{route}", chance.choice(RAW)
        body = copy.deepcopy(CHAT if route == "chat/completions" else COMPLETION)
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            chance.choice(self._ways)(body)
        raw = json.dumps(body).encode()
        if chance.random() < 0.05:
            at = chance.randrange(len(raw))
            raw = raw[:at] + bytes([chance.randrange(256)]) + raw[at + chance.randrange(3) :]
        return f"/v1/{route}", raw

    def _extend(self, body: dict[str, Any]) -> None:
        field = self._random.choice(list(EXTENSIONS))
        values = EXTENSIONS[field] if self._random.random() < 0.8 else ODD
        # A copy, since other mutations may change it; by way of JSON, since `copy` cannot go as deep.
        body[field] = json.loads(json.dumps(self._random.choice(values)))

    def _replace(self, body: dict[str, Any]) -> None:
        where, key = self._random.choice(list(_places(body)) or [(body, "model")])
        where[key] = copy.deepcopy(self._random.choice(ODD))

    def _remove(self, body: dict[str, Any]) -> None:
        where, key = self._random.choice(list(_places(body)) or [(body, "model")])
        if isinstance(where, dict):
            where.pop(key, None)

    def _wrap(self, body: dict[str, Any]) -> None:
        where, key = self._random.choice(list(_places(body)) or [(body, "model")])
        if isinstance(where, list) or key in where:
            where[key] = [where[key]] if self._random.random() < 0.5 else {"value": where[key]}

    def _rename(self, body: dict[str, Any]) -> None:
        if body:
            key = self._random.choice(list(body))
            body[self._random.choice([key.upper(), key + " ", "", "__proto__", "constructor"])] = body.pop(key)


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a body."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, value in items for place in [(node, key), *_places(value)]]
