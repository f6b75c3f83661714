"""Counts decode steps as they are launched and verified, inside a scheduler process."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.shared_counters import SWITCHES_KEPT, SharedCounters


@dataclass(frozen=True)
class _Step:
    depth: int
    batch: int
    follows_decode: bool
    switched_from: int | None  # depth of the step before, if it was another


@dataclass
class DraftCounts:
    """What the draft did in decode steps, counted since the engine started."""

    passes: int = 0  # whole passes of the draft model, each with its LM head
    deferred: int = 0  # positions whose K and V were deferred
    writes: int = 0  # times that deferred K and V were computed


class StepRecorder:
    """Keeps a rank's counters.

    A step's time runs from the verification of the step before to its own. That is what the engine pays for it, with and
    without overlap scheduling. Only a step right after a decode step is timed: otherwise the time of a prefill would count
    as the step's. An idle engine always starts over with a prefill, so idle time is never counted.
    """

    def __init__(
        self,
        counters: SharedCounters,
        padded: Callable[[int], int],
        work: DraftCounts,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._counters = counters
        self._work = work
        self._padded = padded
        self._clock = clock
        self._sizes = counters.sizes.tolist()
        self._in_flight: deque[_Step] = deque()
        self._last_depth: int | None = None
        self._last_was_decode = False
        self._verified_at = 0.0

    def table_in_force(self, revision: int) -> None:
        c = self._counters
        with c.writing():
            c.revision[()], c.at_step[()] = revision, c.steps

    def prefill_launched(self) -> None:
        self._last_was_decode = False

    def step_launched(self, depth: int, batch: int) -> None:
        switched = self._last_depth is not None and depth != self._last_depth
        self._in_flight.append(_Step(depth, batch, self._last_was_decode, self._last_depth if switched else None))
        self._last_depth, self._last_was_decode = depth, True
        c = self._counters
        with c.writing():
            c.depth[()], c.batch[()] = depth, batch
            c.steps[()] += 1
            c.switches[()] += switched

    def step_verified(self, correct_drafts: Sequence[int]) -> None:
        """Count a verified step. `correct_drafts` is the number of accepted draft tokens of each of its requests."""
        step, now = self._in_flight.popleft(), self._clock()
        size = min(bisect_left(self._sizes, self._padded(step.batch)), len(self._sizes) - 1)
        at_least = [0] * (step.depth + 1)  # requests of which so many draft tokens were accepted, or more
        for correct in correct_drafts:
            at_least[correct] += 1
        for position in reversed(range(step.depth)):
            at_least[position] += at_least[position + 1]
        c = self._counters
        with c.writing():
            c.step_count[step.depth, size] += 1
            if step.follows_decode:
                c.timed_count[step.depth, size] += 1
                c.seconds[step.depth, size] += now - self._verified_at
                if step.switched_from is not None:
                    row = int(c.switches_kept) % SWITCHES_KEPT
                    c.switch_steps[row] = step.switched_from, step.depth, step.batch, now - self._verified_at
                    c.switches_kept[()] += 1
            if step.depth:
                c.reached[: step.depth] += at_least[:-1]
                c.accepted[: step.depth] += at_least[1:]
            c.tokens[()] += sum(correct_drafts) + len(correct_drafts)
            c.requests[()] += len(correct_drafts)
            c.draft_passes[()] = self._work.passes
            c.draft_deferred[()] = self._work.deferred
            c.draft_writes[()] = self._work.writes
        self._verified_at = now
