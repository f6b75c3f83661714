"""How likely a drafted token is accepted, by position, for every engine.

Position i has a conditional acceptance a_i: the chance that its draft is accepted, given that those before it were.
A step at depth k then yields for each request, bonus token included,

    E_k = 1 + a_1 + a_1 a_2 + ... + a_1 a_2 ... a_k    tokens,

and it shows a_i only for i <= k, and there only as often as the positions before were accepted. So evidence thins out
geometrically with the position, and a fleet at depth 0 sees nothing at all (which is what `cluster.probe` is for).

Evidence is a pair of counts, reached and accepted, of each engine and position. It is discounted in three ways:

- by newer evidence: an engine remembers `MEMORY` samples of a position, and no tick counts for more than `BLOCK`,
  because the tokens of one moment come from the same few requests and are not independent;
- by time: with a half-life, down to `KEPT` samples. The mean stays where it was: silence is no news, good or bad;
- by contradiction: where a tick differs from an engine's memory by more than chance explains, all that this engine knew
  is dropped. Engines that saw nothing in that tick lose the same share of their memory as the share of seeing engines
  that were contradicted: one canary that finds a better draft speaks for a silent fleet, one of a thousand busy engines
  whose users changed does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

POSITIONS = 16  # the deepest depth that the protocol knows
MEMORY = 1500.0  # samples of a position that an engine remembers
BLOCK = 100.0  # samples that one tick may count for
KEPT = 30.0  # samples that time does not take away
FLEET = 50.0  # samples that the fleet's pooled view weighs against an engine's own
CARRIED = 8.0  # samples that the position before is worth to the next one
CONTRADICTION = 3.5  # standard deviations between a tick and the memory
ENOUGH = 16.0  # samples without which nothing is a contradiction
UNSEEN_MEAN, UNSEEN_WEIGHT = 0.6, 4.0  # of the first position, before any evidence


class AcceptanceModel:
    """Discounted counts of all engines, and the estimates that follow from them."""

    def __init__(self, half_life_s: float = 60.0) -> None:
        self.half_life_s = half_life_s
        self._row: dict[str, int] = {}
        self._reached: Floats = np.zeros((0, POSITIONS))
        self._accepted: Floats = np.zeros((0, POSITIONS))
        self._now: float | None = None

    def observe(self, now: float, counts: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Take in new (reached, accepted) counts by position, of the engines that have any. `now` is in seconds."""
        self._age(0.0 if self._now is None else max(0.0, now - self._now))
        self._now = now
        if not counts:
            return
        rows = np.array([self._row_of(engine) for engine in counts])
        reached, accepted = np.zeros((len(rows), POSITIONS)), np.zeros((len(rows), POSITIONS))
        for i, positions in enumerate(counts.values()):
            for j, (r, a) in enumerate(positions[:POSITIONS]):
                reached[i, j], accepted[i, j] = r, min(a, r)
        self._contradict(rows, reached, accepted)
        weight = np.minimum(1.0, BLOCK / np.maximum(reached, 1.0))
        self._reached[rows] += reached * weight
        self._accepted[rows] += accepted * weight
        self._scale(np.minimum(1.0, MEMORY / np.maximum(self._reached, 1.0)))

    def forget(self, engine: str) -> None:
        """Drop the memory of an engine that is no more."""
        row = self._row.pop(engine, None)
        if row is None:
            return
        last = len(self._reached) - 1
        for name, other in self._row.items():
            if other == last:
                self._row[name] = row
        self._reached[row], self._accepted[row] = self._reached[last], self._accepted[last]
        self._reached, self._accepted = self._reached[:last].copy(), self._accepted[:last].copy()

    def fleet(self) -> tuple[Floats, Floats]:
        """The pooled view: acceptance by position, and the samples that it rests on."""
        reached, accepted = self._reached.sum(axis=0), self._accepted.sum(axis=0)
        mean, samples = np.empty(POSITIONS), np.empty(POSITIONS)
        before, weight = UNSEEN_MEAN, UNSEEN_WEIGHT
        for i in range(POSITIONS):
            # A position without evidence is taken to be like the one before, for at most a few samples.
            samples[i] = reached[i] + weight
            mean[i] = (accepted[i] + weight * before) / samples[i]
            before, weight = mean[i], min(CARRIED, samples[i] / 2)
        return mean, samples

    def estimate(self, engines: Sequence[str]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the conditional acceptance, each as an (engine, position) array.

        An engine's own samples weigh against `FLEET` of the pool's. How it differs from the pool at a position is
        carried to the next one, where its own samples may be few.
        """
        rows = np.array([self._row_of(engine) for engine in engines], dtype=np.int64)
        pool, samples = self.fleet()
        reached, accepted = self._reached[rows], self._accepted[rows]
        weight = np.minimum(FLEET, samples)
        mean = np.empty_like(reached)
        differs = np.zeros(len(rows))
        for i in range(POSITIONS):
            prior = np.clip(pool[i] + differs, 0.0, 1.0)
            mean[:, i] = (accepted[:, i] + weight[i] * prior) / (reached[:, i] + weight[i])
            differs = mean[:, i] - pool[i]
        # Laplace's correction keeps a certainty of exactly 0 or 1 out of the deviation.
        total = reached + weight
        centre = (mean * total + 1.0) / (total + 2.0)
        deviation = np.sqrt(centre * (1.0 - centre) / (total + 1.0))
        return mean, deviation

    def _row_of(self, engine: str) -> int:
        if engine not in self._row:
            self._row[engine] = len(self._reached)
            self._reached = np.vstack([self._reached, np.zeros((1, POSITIONS))])
            self._accepted = np.vstack([self._accepted, np.zeros((1, POSITIONS))])
        return self._row[engine]

    def _age(self, seconds: float) -> None:
        kept = 0.5 ** (seconds / self.half_life_s)
        self._scale(np.minimum(1.0, np.maximum(kept, KEPT / np.maximum(self._reached, 1e-9))))

    def _contradict(self, rows: NDArray[np.int64], reached: Floats, accepted: Floats) -> None:
        known, known_accepted = self._reached[rows], self._accepted[rows]
        comparable = (reached >= ENOUGH) & (known >= ENOUGH)
        pooled = (accepted + known_accepted + 1.0) / (reached + known + 2.0)
        chance = pooled * (1.0 - pooled) * (1.0 / np.clip(reached, 1.0, BLOCK) + 1.0 / np.maximum(known, 1.0))
        differs = np.abs(accepted / np.maximum(reached, 1.0) - known_accepted / np.maximum(known, 1.0))
        contradicted = (comparable & (differs > CONTRADICTION * np.sqrt(chance))).any(axis=1)
        seeing = reached[:, 0] >= ENOUGH
        if not contradicted.any():
            return
        silent = np.ones(len(self._reached), dtype=bool)
        silent[rows[seeing]] = False
        keep = np.where(silent, 1.0 - min(1.0, contradicted.sum() / max(1, seeing.sum())), 1.0)
        keep[rows[contradicted]] = 0.0
        self._scale(keep[:, None])

    def _scale(self, factor: Floats) -> None:
        self._reached *= factor
        self._accepted *= factor
