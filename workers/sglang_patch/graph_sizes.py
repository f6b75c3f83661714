"""At which batch sizes a depth could ever be worth its step time: what an engine need not prepare for."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.messages.profile import StepTimes

BEST_ACCEPTANCE = 0.95
"""More than any draft is known to keep up over many positions."""


def worth_preparing(times: StepTimes, depths: Sequence[int], batches: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """For each depth the batch sizes, from the smallest to the largest at which it could be the best one.

    Acceptance a at every position yields 1 + a + ... + a^k tokens a step. The higher it is, the more depth k gains on any
    shallower one, so a depth that loses to a shallower one at the best acceptance always does. A deeper one proves nothing:
    its last positions may never be accepted. Where `times` says nothing the depth is kept, and the smallest size always.
    """
    sizes = sorted(batches)
    return {depth: _up_to_last(sizes, [_may_win(times, depth, depths, batch) for batch in sizes]) for depth in depths}


def _may_win(times: StepTimes, depth: int, depths: Sequence[int], batch: int) -> bool:
    if not times.covers(depth, batch):
        return True
    goodput = _tokens(depth) / times.ms(depth, batch)
    shallower = [k for k in depths if k < depth and times.covers(k, batch)]
    return all(goodput >= _tokens(k) / times.ms(k, batch) for k in shallower)


def _tokens(depth: int) -> float:
    """Tokens of a step at the best acceptance, bonus token included."""
    return sum(BEST_ACCEPTANCE**position for position in range(depth + 1))


def _up_to_last(sizes: list[int], may_win: list[bool]) -> tuple[int, ...]:
    last = max((i for i, may in enumerate(may_win) if may), default=0)
    return tuple(sizes[: last + 1])
