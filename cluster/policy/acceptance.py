"""How likely a drafted token is accepted, by position, for every engine.

Position i has a conditional acceptance a_i: the chance that its draft is accepted, given that those before it were.
A step at depth k then yields for each request, bonus token included,

    E_k = 1 + a_1 + a_1 a_2 + ... + a_1 a_2 ... a_k    tokens,

and it shows a_i only for i <= k, and there only as often as the positions before were accepted. So evidence thins out
geometrically with the position, and a fleet at depth 0 sees nothing at all (which is what `cluster.policy.exploration` is for).

Evidence is a pair of counts, reached and accepted, of each engine and position. It is discounted in three ways:

- by newer evidence: an engine remembers `MEMORY` samples of a position, and no moment counts for more than `BLOCK`,
  because its tokens come from the same few requests and are not independent;
- by time: with a half-life, down to `KEPT` samples. The mean stays where it was: silence is no news, good or bad;
- by contradiction: where new samples differ from an engine's memory by more than chance explains, all that this engine knew
  is dropped. Engines that saw nothing at that moment lose the same share of their memory as the share of seeing engines
  that were contradicted: one canary that finds a better draft speaks for a silent fleet, one of a thousand busy engines
  whose users changed does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cluster.messages.base import DEEPEST
from cluster.policy.report_delta import Drafts

Floats: TypeAlias = NDArray[np.float64]

MEMORY = 1500.0  # samples of a position that an engine remembers
BLOCK = 100.0  # samples that one moment may count for
KEPT = 30.0  # samples that time does not take away
FLEET = 50.0  # samples that the other engines' pooled view weighs at most against an engine's own
CARRIED = 8.0  # samples that the position before is worth to the next one
CONTRADICTION = 3.5  # standard deviations between new samples and the memory
ENOUGH = 16.0  # samples of the first position that are compared at once; fewer wait for more
UNSEEN_MEAN, UNSEEN_WEIGHT = 0.6, 4.0  # of the first position, before any evidence


class AcceptanceModel:
    """Discounted counts of all engines, and the estimates that follow from them."""

    def __init__(self, half_life_s: float = 60.0) -> None:
        self.half_life_s = half_life_s
        self._row: dict[str, int] = {}
        # Both by (reached or accepted, engine, position).
        self._memory: Floats = np.zeros((2, 0, DEEPEST))
        self._waiting: Floats = np.zeros((2, 0, DEEPEST))
        self._now: float | None = None

    def observe(self, now: float, drafts: Drafts) -> None:
        """Take in new counts; `now` is in seconds."""
        self._age(0.0 if self._now is None else max(0.0, now - self._now))
        self._now = now
        if not drafts.owner:
            return
        rows = self._rows(drafts.engines)
        to = (rows[drafts.owner], np.minimum(drafts.position, DEEPEST - 1))
        reached = np.array(drafts.reached, dtype=float)
        self._waiting[0][to] += reached
        self._waiting[1][to] += np.minimum(drafts.accepted, reached)
        ready = rows[self._waiting[0, rows, 0] >= ENOUGH]
        if not len(ready):
            return
        news = self._waiting[:, ready]
        self._waiting[:, ready] = 0.0
        self._contradict(ready, news)
        self._memory[:, ready] += news * np.minimum(1.0, BLOCK / np.maximum(news[0], 1.0))
        self._memory *= np.minimum(1.0, MEMORY / np.maximum(self._memory[0], 1.0))

    def forget(self, engine: str) -> None:
        """Drop the memory of an engine that is no more."""
        row = self._row.pop(engine, None)
        if row is not None:
            self._memory = np.delete(self._memory, row, axis=1)
            self._waiting = np.delete(self._waiting, row, axis=1)
            self._row = {name: r - (r > row) for name, r in self._row.items()}

    def estimate(self, engines: Sequence[str], positions: int = DEEPEST) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the conditional acceptance, each as an (engine, position) array.

        An engine's own samples weigh against up to `FLEET` of all others together. A position that hardly anyone reached is
        taken to be like the one before, for a few samples; by how much the engine differs from the others goes along.
        More accepted drafts of an engine never lower any of its estimates: all weights depend on what was reached alone.
        """
        rows = self._rows(engines)
        evidence = self._memory + self._waiting
        own = evidence[:, rows, :positions]
        # Sums of what is left after subtraction can be a rounding error below zero.
        reached, accepted = np.maximum(0.0, evidence[:, :, :positions].sum(axis=1, keepdims=True) - own)
        mean, total = np.empty_like(reached), np.empty_like(reached)
        fleet = before = np.full(len(rows), UNSEEN_MEAN)
        carried = np.full(len(rows), UNSEEN_WEIGHT)
        for i in range(positions):
            fleet_before = fleet
            fleet = (accepted[:, i] + carried * fleet) / (reached[:, i] + carried)
            expected = np.clip(fleet + before - fleet_before, 0.0, 1.0)
            weight = np.minimum(FLEET, reached[:, i] + carried)
            total[:, i] = own[0, :, i] + weight
            mean[:, i] = before = (own[1, :, i] + weight * expected) / total[:, i]
            carried = np.minimum(CARRIED, total[:, i] / 2)
        # Laplace's correction keeps a certainty of exactly 0 or 1 out of the deviation.
        centre = (mean * total + 1.0) / (total + 2.0)
        deviation = np.sqrt(centre * (1.0 - centre) / (total + 1.0))
        return mean, deviation

    def undecided(self, engine: str) -> bool:
        """Whether the engine's newest drafts are still too few to be compared with what is known of it."""
        return bool(self._waiting[0, self._rows([engine])[0], 0] > 0)

    def _rows(self, engines: Sequence[str]) -> NDArray[np.int64]:
        for engine in engines:
            self._row.setdefault(engine, len(self._row))
        extra = np.zeros((2, len(self._row) - self._memory.shape[1], DEEPEST))
        if extra.size:
            self._memory = np.concatenate([self._memory, extra], axis=1)
            self._waiting = np.concatenate([self._waiting, extra], axis=1)
        return np.array([self._row[engine] for engine in engines], dtype=np.int64)

    def _age(self, seconds: float) -> None:
        kept = 0.5 ** (seconds / self.half_life_s)
        self._memory *= np.minimum(1.0, np.maximum(kept, KEPT / np.maximum(self._memory[0], 1e-9)))

    def _contradict(self, rows: NDArray[np.int64], news: Floats) -> None:
        """Compare what these engines saw with what they remember, and drop the memories that it contradicts."""
        (new, new_accepted), (known, known_accepted) = news, self._memory[:, rows]
        pooled = (new_accepted + known_accepted + 1.0) / (new + known + 2.0)
        chance = pooled * (1.0 - pooled) * (1.0 / np.clip(new, 1.0, BLOCK) + 1.0 / np.maximum(known, 1.0))
        differs = np.abs(new_accepted / np.maximum(new, 1.0) - known_accepted / np.maximum(known, 1.0))
        comparable = (new >= ENOUGH) & (known >= ENOUGH)
        contradicted = (comparable & (differs > CONTRADICTION * np.sqrt(chance))).any(axis=1)
        keep = np.full(self._memory.shape[1], 1.0 - contradicted.mean())
        keep[rows] = ~contradicted
        self._memory *= keep[:, None]
