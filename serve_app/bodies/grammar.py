"""Bounds for what constrains an answer. A few bytes of it can make a grammar that no machine has the memory for."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_PATTERN_CHARS = 512
MAX_PATTERN_STATES = 1024
MAX_SCHEMA_BYTES = 32 << 10
MAX_SCHEMA_DEPTH = 24
MAX_SCHEMA_COUNT = 1024

_COUNT = re.compile(r"(min|max)(Items|Length|Properties|Contains)$")
_REPEAT = re.compile(r"\{(\d{0,9})(,?)(\d{0,9})\}")
_TOKEN = re.compile(r"\\.|\[\^?(?:\\.|[^\]\\])+\]|.", re.DOTALL)  # an escape, a class of characters, or one character
_AMBIGUOUS = re.compile(r"\(\?(#|[a-zA-Z-]*x)|\[\^?\]")
"""Comments, and classes that begin with a bracket: engines differ in where these end, so repetitions could hide in them."""


def check_pattern(pattern: str) -> str:
    """A regular expression that is short and unfolds into few states.

    Raises:
        ValueError: if it is not.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    if _AMBIGUOUS.search(pattern):
        raise ValueError("a pattern has no comments, and no class of characters that begins with ]")
    if _states(pattern) > MAX_PATTERN_STATES:
        raise ValueError(f"the pattern's repetitions unfold into more than {MAX_PATTERN_STATES} states")
    return pattern


def _states(pattern: str) -> int:
    """How many states a pattern unfolds into, at most: what stands side by side adds up, a repetition multiplies."""
    groups: list[list[int]] = [[0]]  # sizes of the parts of each group that is open; the first is there to be repeated
    at = 0
    while at < len(pattern):
        repeat = _REPEAT.match(pattern, at)
        token = repeat or _TOKEN.match(pattern, at)
        assert token is not None
        if repeat:
            groups[-1][-1] *= max(1, int(repeat[1] or 0), int(repeat[3] or 0))
        elif token[0] == "(":
            groups.append([0])
        elif token[0] == ")":
            size = max(1, sum(groups.pop()))
            groups[-1].append(size)
        else:
            groups[-1].append(1)
        at = token.end()
    return sum(groups[0])


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema of bounded size, depth and counts, with bounded patterns.

    Raises:
        ValueError: if it is not.
    """
    if len(json.dumps(schema)) > MAX_SCHEMA_BYTES:
        raise ValueError(f"a schema has at most {MAX_SCHEMA_BYTES} bytes")
    _check_node(schema, MAX_SCHEMA_DEPTH)
    return schema


def _check_node(node: Any, depth: int) -> None:
    if depth < 0:
        raise ValueError(f"a schema is at most {MAX_SCHEMA_DEPTH} levels deep")
    if isinstance(node, dict):
        for key, value in node.items():
            if _COUNT.match(key) and isinstance(value, (int, float)) and value > MAX_SCHEMA_COUNT:
                raise ValueError(f"{key}: at most {MAX_SCHEMA_COUNT}")
            if key == "pattern" and isinstance(value, str):
                check_pattern(value)
            if key == "patternProperties" and isinstance(value, dict):
                for pattern in value:
                    check_pattern(pattern)
            _check_node(value, depth - 1)
    elif isinstance(node, list):
        for value in node:
            _check_node(value, depth - 1)
