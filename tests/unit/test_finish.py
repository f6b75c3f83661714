"""An answer ends where the first token that ends it is, at any depth."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from workers.sglang_patch.finish import update_finish_state

STOPS = {5, 9}


class Grammar:
    """One that has read the whole run, and is complete after its last token."""

    def is_terminated(self) -> bool:
        return True


class Request:
    """The part of SGLang's request that finishing reads and writes."""

    def __init__(self, output: list[int], grammar: Grammar | None = None) -> None:
        self.output_ids = array("q", output)
        self.grammar = grammar
        self.finished_len: int | None = None
        self.reasoning_tokens = len(output)
        self.reason = ""

    def finished(self) -> bool:
        return bool(self.reason)


def check(request: Request, new_accepted_len: int) -> None:
    """What SGLang does: a stop token that it prefers to others, wherever it is, then the grammar."""
    new = request.output_ids[-new_accepted_len:]
    for stop in sorted(STOPS, reverse=True):
        if stop in new:
            request.reason = f"stop {stop}"
            request.finished_len = len(request.output_ids) - len(new) + new.index(stop) + 1
            return
    if request.grammar is not None and request.grammar.is_terminated():
        request.reason = "grammar"


@pytest.mark.parametrize(
    ("run", "reason", "length"),
    [
        ([5, 9, 1], "stop 5", 3),
        ([1, 9, 5], "stop 9", 4),
        ([1, 1, 1], "", None),
        ([5], "stop 5", 3),
    ],
)
def test_the_first_end_in_a_run_is_the_answer_s(run: list[int], reason: str, length: int | None) -> None:
    request = Request([1, 2, *run])
    update_finish_state(check, request, len(run))
    assert (request.reason, request.finished_len) == (reason, length)
    assert request.output_ids.tolist() == [1, 2, *run], "what SGLang committed stays"
    assert request.reasoning_tokens == (length or len(request.output_ids))


def test_a_grammar_ends_an_answer_at_the_last_token_of_a_run_alone() -> None:
    grammar = Grammar()
    request = Request([1, 2, 3, 4], grammar)
    update_finish_state(check, request, 3)
    assert (request.reason, request.finished_len) == ("grammar", 4)
    assert request.grammar is grammar


def test_a_stop_before_the_end_of_a_grammar_comes_first() -> None:
    grammar: Any = Grammar()
    request = Request([1, 5, 3], grammar)
    update_finish_state(check, request, 2)
    assert (request.reason, request.finished_len) == ("stop 5", 2)
    assert request.grammar is grammar
