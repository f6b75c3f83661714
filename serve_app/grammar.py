"""Bounds for what constrains an answer. A few bytes of it can make a grammar that no machine has the memory for."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_PATTERN_CHARS = 512
MAX_PATTERN_STATES = 4096
MAX_SCHEMA_BYTES = 32 << 10
MAX_SCHEMA_DEPTH = 24
MAX_SCHEMA_COUNT = 1024

_COUNT = re.compile(r"(min|max)(Items|Length|Properties|Contains)$")
_REPEAT = re.compile(r"\{(\d{0,9})(,?)(\d{0,9})\}")


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
    # The product of all counts bounds what nested repetitions unfold into.
    states = len(pattern)
    for low, _, high in _REPEAT.findall(pattern):
        states *= max(1, int(low or 0), int(high or 0))
        if states > MAX_PATTERN_STATES:
            raise ValueError(f"the pattern's repetitions unfold into more than {MAX_PATTERN_STATES} states")
    return pattern


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
