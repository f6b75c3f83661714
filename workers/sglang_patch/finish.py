"""Where an answer ends: at the first token that ends it, however far a run of accepted tokens goes on."""

from __future__ import annotations

from typing import Any


def update_finish_state(original: Any, request: Any, new_accepted_len: int = 1) -> None:
    """Check an accepted run token by token, as steps without a draft do.

    SGLang 0.5.23 looks for each stop string in the whole run, in the order of the request's list, and after that for tokens
    that end an answer. So what came first did not always win.
    """
    if new_accepted_len < 2:
        original(request, new_accepted_len)
    else:
        _check_each(original, request, new_accepted_len)
    if request.finished_len is not None:
        # SGLang counts the thoughts in the whole run.
        request.reasoning_tokens = min(request.reasoning_tokens, request.finished_len)


def _check_each(original: Any, request: Any, new_accepted_len: int) -> None:
    output, grammar = request.output_ids, request.grammar
    run = output[-new_accepted_len:]
    del output[-new_accepted_len:]
    for i, token in enumerate(run):
        output.append(token)
        # The grammar has read the whole run, which SGLang cuts after the token that completes it.
        request.grammar = grammar if i == len(run) - 1 else None
        original(request, 1)
        if request.finished():
            if request.finished_len is None:
                request.finished_len = len(output)
            output.extend(run[i + 1 :])
            break
    request.grammar = grammar
