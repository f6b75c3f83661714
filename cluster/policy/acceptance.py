"""How likely a drafted token is accepted, by draft position, for every engine.

Position i has a conditional acceptance a_i: the chance that its draft is accepted if those before it were. A step at depth k
shows a_i only for i <= k, and only as often as the positions before were accepted. So evidence gets thinner geometrically with
the position, and a fleet at depth 0 sees nothing at all. `cluster.policy.exploration` is there for that.

The evidence is two counts for each engine and position: drafts that were reached, and those that were accepted. It is
discounted in three ways:

- By newer evidence. An engine remembers `MEMORY` samples of a position, and one tick counts for `BLOCK` samples at most:
  its tokens come from the same few requests and are not independent.
- By time. Evidence has a half-life, but `KEPT` samples stay. The mean does not move: silence is no news, good or bad.
- By contradiction. Where new samples differ from an engine's memory by more than chance explains, its whole memory is
  dropped. Of the engines that saw something in that tick, some share was contradicted; engines that saw nothing lose that
  share of their memory. So one canary that finds a better draft speaks for a silent fleet, and one busy engine of a
  thousand, whose users changed, does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cluster.messages.base import DEEPEST
from cluster.policy.arrays import Floats, Indices, Mask
from cluster.policy.engine_rows import EngineRows
from cluster.policy.report_delta import DraftDelta

MEMORY = 1500.0  # samples of a position that an engine remembers
BLOCK = 100.0  # samples that one tick may count for
KEPT = 30.0  # samples that time does not take away
FLEET = 50.0  # most samples that the other engines' pooled acceptance weighs beside an engine's own
CARRIED = 8.0  # most samples that one position is worth as evidence about the next
CONTRADICTION = 3.5  # standard deviations between new samples and the memory
ENOUGH = 16.0  # samples of the first position that are compared at once; fewer wait for more
UNSEEN_MEAN, UNSEEN_WEIGHT = 0.6, 4.0  # of the first position before any evidence: acceptance, and samples it is worth

_ROW = np.zeros((), [("memory", np.float64, (2, DEEPEST)), ("waiting", np.float64, (2, DEEPEST))])
"""Of one engine, by (reached or accepted, position): evidence, and samples too few to be compared with it yet."""


class AcceptanceEstimate(NamedTuple):
    """Conditional acceptance of some engines."""

    mean: Floats  # by (engine, position)
    deviation: Floats  # standard deviation of the mean, by (engine, position)
    undecided: Mask  # by engine: whether its newest drafts are still too few to be compared with its memory


class AcceptanceModel:
    """Discounted counts of all engines, and the estimates that follow from them."""

    def __init__(self) -> None:
        self._engines = EngineRows(_ROW)
        self._now: float | None = None

    def observe(self, now: float, drafts: DraftDelta, half_life_s: float) -> None:
        """Add new counts; `now` is in seconds, `half_life_s` the time in which evidence loses half its weight."""
        self._age(0.0 if self._now is None else max(0.0, now - self._now), half_life_s)
        self._now = now
        if not drafts.owner:
            return
        rows = self._engines.find(drafts.engines)
        memory, waiting = self._engines["memory"], self._engines["waiting"]
        row, position = rows[drafts.owner], np.minimum(drafts.position, DEEPEST - 1)
        reached = np.array(drafts.reached, dtype=float)
        waiting[row, 0, position] += reached
        waiting[row, 1, position] += np.minimum(drafts.accepted, reached)
        ready = rows[waiting[rows, 0, 0] >= ENOUGH]
        if not len(ready):
            return
        new = waiting[ready]
        waiting[ready] = 0.0
        self._drop_contradicted(ready, new)
        memory[ready] += new * np.minimum(1.0, BLOCK / np.maximum(new[:, :1], 1.0))
        memory *= np.minimum(1.0, MEMORY / np.maximum(memory[:, :1], 1.0))

    def forget(self, engine: str) -> None:
        """Drop the memory of an engine that is gone."""
        self._engines.forget(engine)

    def estimate(self, engines: Sequence[str], positions: int = DEEPEST) -> AcceptanceEstimate:
        """Estimate the acceptance of these engines at the first `positions` positions.

        An engine's own samples weigh against at most `FLEET` samples of all others together. A position that hardly any draft
        reached is assumed to be like the one before, for a few samples; the engine's difference from the others carries over.
        More accepted drafts of an engine never lower any of its estimates, because all weights depend on the reached ones.
        """
        rows = self._engines.find(engines)
        evidence = (self._engines["memory"] + self._engines["waiting"])[:, :, :positions]
        own = evidence[rows]
        # Sums of what is left after subtraction can be a rounding error below zero.
        others = np.maximum(0.0, evidence.sum(axis=0) - own)
        reached, accepted = others[:, 0], others[:, 1]
        mean, total = np.empty_like(reached), np.empty_like(reached)
        fleet = before = np.full(len(rows), UNSEEN_MEAN)
        carried = np.full(len(rows), UNSEEN_WEIGHT)
        for i in range(positions):
            fleet_before = fleet
            fleet = (accepted[:, i] + carried * fleet) / (reached[:, i] + carried)
            expected = np.clip(fleet + before - fleet_before, 0.0, 1.0)
            weight = np.minimum(FLEET, reached[:, i] + carried)
            total[:, i] = own[:, 0, i] + weight
            mean[:, i] = before = (own[:, 1, i] + weight * expected) / total[:, i]
            carried = np.minimum(CARRIED, total[:, i] / 2)
        # Laplace's rule of succession keeps certainties of exactly 0 or 1 out of the deviation.
        centre = (mean * total + 1.0) / (total + 2.0)
        deviation = np.sqrt(centre * (1.0 - centre) / (total + 1.0))
        return AcceptanceEstimate(mean, deviation, undecided=self._engines["waiting"][rows, 0, 0] > 0)

    def _age(self, seconds: float, half_life_s: float) -> None:
        memory = self._engines["memory"]
        kept = 0.5 ** (seconds / half_life_s)
        memory *= np.minimum(1.0, np.maximum(kept, KEPT / np.maximum(memory[:, :1], 1e-9)))

    def _drop_contradicted(self, rows: Indices, new: Floats) -> None:
        """Compare new samples of these engines with their memory, and drop the memories that they contradict."""
        memory = self._engines["memory"]
        reached, accepted = new[:, 0], new[:, 1]
        known, known_accepted = memory[rows, 0], memory[rows, 1]
        # A test of two proportions, with the variance of the pooled one.
        pooled = (accepted + known_accepted + 1.0) / (reached + known + 2.0)
        variance = pooled * (1.0 - pooled) * (1.0 / np.clip(reached, 1.0, BLOCK) + 1.0 / np.maximum(known, 1.0))
        difference = np.abs(accepted / np.maximum(reached, 1.0) - known_accepted / np.maximum(known, 1.0))
        comparable = (reached >= ENOUGH) & (known >= ENOUGH)
        contradicted = (comparable & (difference > CONTRADICTION * np.sqrt(variance))).any(axis=1)
        keep = np.full(len(memory), 1.0 - contradicted.mean())
        keep[rows] = ~contradicted
        memory *= keep[:, None, None]
