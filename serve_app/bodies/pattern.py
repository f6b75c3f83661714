"""Bounds for regular expressions that constrain an answer. A few bytes can make a grammar that no machine has the memory for.

Python's own parser reads them. It is private to the standard library, so this module alone imports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from re import _parser as regex_parser  # type: ignore[attr-defined]
from typing import Any

MAX_CHARS = 512
MAX_STATES = 1024

_AMBIGUOUS = re.compile(r"\(\?(#|[a-zA-Z-]*x)|\[\^?\]")
"""Comments, and classes that begin with a bracket. Python and the engine's grammar read these differently, so a repetition that
Python does not see could hide in them."""


def check_pattern(pattern: str) -> str:
    """Return the regular expression if it is short and unfolds into few states.

    Raises:
        ValueError: if not.
    """
    if len(pattern) > MAX_CHARS:
        raise ValueError(f"a pattern has at most {MAX_CHARS} characters")
    if _AMBIGUOUS.search(pattern):
        raise ValueError("a pattern has no comments, and no class of characters that begins with ]")
    try:
        re.compile(pattern)
        states = count_states(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    if states > MAX_STATES:
        raise ValueError(f"the pattern's repetitions unfold into more than {MAX_STATES} states")
    return pattern


def count_states(pattern: str) -> int:
    """How many states a pattern unfolds into, at most: a sequence adds up, alternatives too, and a repetition multiplies."""
    return _states(regex_parser.parse(_with_alternatives_apart(pattern)))


def _with_alternatives_apart(pattern: str) -> str:
    """Put an empty group after each bar. Python's parser merges alternatives that begin alike; the engine's does not."""
    apart, in_class = "", False
    for token in _tokens(pattern):
        apart += "|()" if token == "|" and not in_class else token
        in_class = token != "]" if in_class else token == "["
    return apart


def _tokens(pattern: str) -> Iterator[str]:
    """Characters; an escape is one token."""
    tokenizer = regex_parser.Tokenizer(pattern)
    while (token := tokenizer.get()) is not None:
        yield token


def _states(sequence: Iterable[tuple[Any, Any]]) -> int:
    """States of a part of the parse tree. Its nodes are pairs of a kind and an argument."""
    return max(1, sum(_repetitions(kind, argument) * _node_states(argument) for kind, argument in sequence))


def _node_states(argument: Any) -> int:
    """States of a group's parts or a branch's alternatives. A character, or a class of them, has no parts and is one state."""
    return max(1, sum(map(_states, _parts(argument))))


def _parts(argument: Any) -> Iterator[Iterable[tuple[Any, Any]]]:
    if isinstance(argument, regex_parser.SubPattern):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for item in argument:
            yield from _parts(item)


def _repetitions(kind: Any, argument: Any) -> int:
    if not str(kind).endswith("_REPEAT"):
        return 1
    least, most, _ = argument
    return max(1, int(least), 0 if most is regex_parser.MAXREPEAT else int(most))
