"""Bounds for JSON schemas that constrain an answer. A few bytes can make a grammar that no machine has the memory for."""

from __future__ import annotations

import json
import re
from typing import Any

from serve_app.bodies.pattern import check_pattern

MAX_BYTES = 32 << 10
MAX_DEPTH = 24
MAX_COUNT = 1024

_COUNT = re.compile(r"(min|max)(Items|Length|Properties|Contains)$")


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema if its size, depth, counts and patterns are within bounds.

    Raises:
        ValueError: if not.
    """
    if len(json.dumps(schema)) > MAX_BYTES:
        raise ValueError(f"a schema has at most {MAX_BYTES} bytes")
    _check_node(schema, MAX_DEPTH)
    return schema


def _check_node(node: Any, depth: int) -> None:
    if depth < 0:
        raise ValueError(f"a schema is at most {MAX_DEPTH} levels deep")
    if isinstance(node, dict):
        for key, value in node.items():
            if _COUNT.match(key) and isinstance(value, (int, float)) and value > MAX_COUNT:
                raise ValueError(f"{key}: at most {MAX_COUNT}")
            if key == "pattern" and isinstance(value, str):
                check_pattern(value)
            if key == "patternProperties" and isinstance(value, dict):
                for pattern in value:
                    check_pattern(pattern)
            _check_node(value, depth - 1)
    elif isinstance(node, list):
        for value in node:
            _check_node(value, depth - 1)
