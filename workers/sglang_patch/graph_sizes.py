"""Batch sizes at which each depth could be worth its step time. An engine prepares for no others."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.messages.profile import StepTimes

BEST_ACCEPTANCE = 0.95
"""An acceptance that no known draft keeps up over many positions."""


def worth_preparing(times: StepTimes, depths: Sequence[int], batches: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """For each depth, the batch sizes from the smallest to the largest at which it could be the best depth.

    With acceptance a at every position, a step at depth k yields 1 + a + ... + a^k tokens. The higher a is, the more depth k
    gains on any shallower one. So a depth that loses to a shallower one at the best acceptance always loses to it. A deeper
    depth rules nothing out: its last positions may never be accepted. A depth stays where `times` has no value, and every
    depth keeps the smallest size.
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
