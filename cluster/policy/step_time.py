"""How long a decode step takes, by depth and by the padded batch size that is paid for.

The logarithm of the step time is a prior mean plus a Gaussian process over (depth, batch size), so that the machine's
overall speed, the bend over batch sizes, the price of a draft step and what is peculiar to one depth are told apart, and
a measurement at one place teaches as much about another as it should:

    cov((k, b), (k', b')) = speed^2 + bend^2 W + draft^2 u u' W + local^2 [k = k'] N,
    u = ln(1 + k),  W = exp(-(ln b/b')^2 / 2 far^2),  N = exp(-(ln b/b')^2 / 2 near^2)

Ratios of step times decide about depth, and their uncertainty says what is worth trying. The prior mean is a profile,
or without one the vague `t ~ b^0.25 (1+k)^0.4`, with wider deviations.

A measurement is the mean step time of one tick, as a logarithm. Of each place the last few are kept and their median
counts, so that a prefill in between or a noisy moment moves nothing. Means over the posterior are finally made monotone in
depth and batch size: a deeper or a fuller step is never cheaper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import NamedTuple

import numpy as np

from cluster.messages.base import DEEPEST
from cluster.messages.profile import StepTimes
from cluster.policy.acceptance import Floats
from cluster.policy.depth_choice import Indices
from cluster.policy.report_delta import Steps

FAR, NEAR = 2.0, 0.7  # reach over batch sizes, as a natural logarithm of their ratio
STEP_NOISE = 0.2  # assumed log deviation of one step's time
TICK_NOISE = 0.01  # and what averaging over steps does not take away
DRIFT = 0.02  # log deviation that a measurement gathers in a minute
RECENT = 15  # ticks of each place whose median counts
DEPTHS = DEEPEST + 1  # that there are: from 0 on
REFRESH_S = 1.0  # how long the same places may wait to be fitted again


class Scales(NamedTuple):
    """Prior log deviations of the process's parts."""

    speed: float
    bend: float
    draft: float
    local: float


WITH_PROFILE = Scales(speed=0.3, bend=0.15, draft=0.15, local=0.3)
WITHOUT = Scales(speed=3.0, bend=0.7, draft=0.3, local=0.12)


@dataclass
class _Place:
    """Recent measurements at one depth and place on the batch axis, relative to the prior mean."""

    depth: int
    # Of each tick: median over engines, steps that it rests on, and mean logarithm of the batch size.
    recent: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    measured_at: float = 0.0


@dataclass(frozen=True)
class StepTimeFit:
    """What a fit says on a grid: natural logarithms of seconds, and how they vary together at each batch size."""

    log_s: Floats  # (depth, batch)
    covariance: Floats  # (batch, depth, depth)

    def doubt(self, depth: int, other: int, batch: int) -> float:
        """Log standard deviation of the ratio of two depths' step times (all arguments are indices)."""
        c = self.covariance[batch]
        return float(max(0.0, c[depth, depth] + c[other, other] - 2 * c[depth, other]) ** 0.5)


class StepTimeModel:
    """Step times of engines that are alike, on a grid of their depths and batch sizes."""

    def __init__(
        self, depths: Sequence[int], batches: Sequence[float], floors: Sequence[int], prior: StepTimes | None = None
    ) -> None:
        """`floors` is where each place on the batch axis begins, `batches` the size that stands for it."""
        self._prior = prior
        self._scales = WITHOUT if prior is None else WITH_PROFILE
        self._depths = tuple(depths)
        self._batches = tuple(batches)
        self._floors = np.array(floors)
        self._places: dict[tuple[int, int], _Place] = {}
        # Slot and prior mean of a depth and batch size, by depth + DEPTHS * batch.
        self._known: dict[int, tuple[tuple[int, int], float]] = {}
        self._grid_mean = np.array([[self._mean(k, b) for b in batches] for k in depths])
        self._fit: StepTimeFit | None = None
        self._fitted_at = float("-inf")
        self._stale = True

    def observe(self, now: float, new: Steps) -> None:
        """Take in what all engines timed in one tick; `now` is in seconds."""
        timed, seconds = np.array(new.timed), np.array(new.seconds)
        use = (timed > 0) & (seconds > 0)
        if not use.any():
            return
        timed, seconds = timed[use], seconds[use]
        depth, batch = np.array(new.depth)[use], np.array(new.batch)[use]
        codes, of = np.unique(depth + DEPTHS * batch, return_inverse=True)  # numbers sort faster than pairs
        known = [self._known.get(code) or self._know(code) for code in codes.tolist()]
        values = np.log(seconds / timed) - np.array([mean for _, mean in known])[of]
        keys = sorted({key for key, _ in known})
        number = {key: i for i, key in enumerate(keys)}
        at = np.array([number[key] for key, _ in known])[of]
        steps = np.bincount(at, timed)
        log_batch = np.bincount(at, timed * np.log(batch)) / steps
        value = medians(values, timed, at)
        for key, measured in zip(keys, zip(value.tolist(), steps.tolist(), log_batch.tolist(), strict=True), strict=True):
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = _Place(key[0])
                self._stale = True
            place.recent.append(measured)
            place.measured_at = now

    def costs(self, now: float) -> StepTimeFit:
        """The fit. Recomputed at once where a new place was measured, otherwise every `REFRESH_S` seconds."""
        if self._fit is None or self._stale or now - self._fitted_at >= REFRESH_S:
            self._fit, self._fitted_at, self._stale = self._fitted(now), now, False
        return self._fit

    def _know(self, code: int) -> tuple[tuple[int, int], float]:
        batch, depth = divmod(code, DEPTHS)
        place = max(0, int(np.searchsorted(self._floors, batch, side="right")) - 1)
        known = self._known[code] = (depth, place), self._mean(depth, batch)
        return known

    def _mean(self, depth: int, batch: float) -> float:
        if self._prior is not None:
            return log(self._prior.ms(depth, batch) / 1e3)
        return log(0.01) + 0.25 * log(batch) + 0.4 * log(1 + depth)

    def _fitted(self, now: float) -> StepTimeFit:
        depths, batches = len(self._depths), len(self._batches)
        u = np.repeat(np.log1p(np.array(self._depths, dtype=float)), batches)
        v = np.tile(np.log(np.array(self._batches, dtype=float)), depths)
        # Of each batch size only the covariance between depths is needed: blocks of (depth, depth).
        own_u = u.reshape(depths, batches).T
        own_v = np.tile(np.log(np.array(self._batches, dtype=float))[:, None], (1, depths))
        prior_blocks = self._kernel(own_u[:, :, None], own_v[:, :, None], own_u[:, None, :], own_v[:, None, :])
        if not self._places:
            return StepTimeFit(self._grid_mean, prior_blocks)
        seen = list(self._places.values())
        of = np.repeat(np.arange(len(seen)), [len(place.recent) for place in seen])
        recent, weight, log_batch = np.array([measured for place in seen for measured in place.recent]).T
        value, steps = medians(recent, weight, of), np.bincount(of, weight)
        seen_u = np.log1p(np.array([place.depth for place in seen], dtype=float))
        seen_v = np.bincount(of, weight * log_batch) / steps
        at = np.array([place.measured_at for place in seen])
        noise = STEP_NOISE**2 / steps + TICK_NOISE**2 + DRIFT**2 * np.maximum(0.0, now - at) / 60.0
        between = self._kernel(seen_u[:, None], seen_v[:, None], seen_u[None, :], seen_v[None, :]) + np.diag(noise)
        across = self._kernel(u[:, None], v[:, None], seen_u[None, :], seen_v[None, :])
        root = np.linalg.cholesky(between)
        half = np.linalg.solve(root, across.T)
        surprises = np.linalg.solve(root, value)  # standard normal, were the prior right
        mean = self._grid_mean + (half.T @ surprises).reshape(depths, batches)
        halves = half.reshape(len(seen), depths, batches)
        blocks = prior_blocks - np.einsum("nds,nes->sde", halves, halves)
        # A prior that was wrong where it was checked is trusted less where it was not.
        blocks = blocks * max(1.0, (1.0 + float(surprises @ surprises)) / (1.0 + len(seen)))
        variance = np.einsum("sdd->ds", blocks)
        return StepTimeFit(monotone(mean, 1.0 / np.maximum(variance, 1e-8)), blocks)

    def _kernel(self, u: Floats, v: Floats, u2: Floats, v2: Floats) -> Floats:
        s = self._scales
        distance = (v - v2) ** 2
        wide, near = np.exp(-distance / (2 * FAR**2)), np.exp(-distance / (2 * NEAR**2))
        same = np.abs(u - u2) < 1e-9
        result: Floats = s.speed**2 + (s.bend**2 + s.draft**2 * u * u2) * wide + s.local**2 * same * near
        return result


def monotone(values: Floats, weights: Floats) -> Floats:
    """Close to `values`, by weight, but never falling along either axis."""
    values = values.copy()
    for _ in range(4):
        if (np.diff(values, axis=0) >= 0).all() and (np.diff(values, axis=1) >= 0).all():
            return values
        for row in np.flatnonzero((np.diff(values, axis=1) < 0).any(axis=1)):
            values[row] = _rising(values[row].tolist(), weights[row].tolist())
        for column in np.flatnonzero((np.diff(values, axis=0) < 0).any(axis=0)):
            values[:, column] = _rising(values[:, column].tolist(), weights[:, column].tolist())
    # Alternating gets close; the running maximum settles what is left.
    result: Floats = np.maximum.accumulate(np.maximum.accumulate(values, axis=0), axis=1)
    return result


def _rising(values: list[float], weights: list[float]) -> list[float]:
    """Weighted isotonic regression: neighbours that fall are pooled into their mean."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (v1, w1, n1), (v2, w2, n2) = pools[-2], pools[-1]
            pools[-2:] = [((v1 * w1 + v2 * w2) / (w1 + w2), w1 + w2, n1 + n2)]
    return [value for value, _, n in pools for _ in range(n)]


def medians(values: Floats, weights: Floats, group: Indices) -> Floats:
    """Weighted median of each group 0, 1, ..., none of which may be empty; between two halves of equal weight, their mean."""
    order = np.lexsort((values, group))
    values, below = values[order], np.cumsum(weights[order])
    ends = np.cumsum(np.bincount(group))
    half = (below[ends - 1] + np.concatenate([[0.0], below[ends[:-1] - 1]])) / 2
    low = np.searchsorted(below, half)
    high = low + (below[low] == half)
    result: Floats = (values[low] + values[high]) / 2
    return result
