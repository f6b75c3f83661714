"""How long a decode step takes, by depth and padded batch size.

The logarithm of the step time is a prior mean plus a Gaussian process over depth and batch size
(`cluster.policy.gaussian_process`). Ratios of step times decide about depth; their uncertainty says what is worth trying. The
prior mean is a profile. Without one it is the vague `t ~ b^0.25 (1 + k)^0.4`, with wider deviations.

A measurement is the mean step time of one tick. The model keeps the last few at each depth and batch bucket, and their median
counts, so that a prefill in between or a noisy moment changes nothing. Finally the fit is made monotone: a deeper or a fuller
step is never cheaper.
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
from cluster.policy.arrays import Floats
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.gaussian_process import GaussianProcess, Measurements, Scales
from cluster.policy.isotonic import monotone
from cluster.policy.report_delta import StepDelta
from cluster.policy.weighted_median import weighted_medians

STEP_NOISE = 0.2  # assumed log deviation of one step's time
TICK_NOISE = 0.01  # log deviation that averaging over the steps of a tick does not remove
DRIFT = 0.02  # log deviation that a measurement gathers in a minute
RECENT = 15  # ticks whose median counts
REFIT_S = 1.0  # how long a fit is kept while steps run where others were measured before, in seconds

WITH_PROFILE = Scales(speed=0.3, bend=0.15, draft=0.15, local=0.3)
WITHOUT_PROFILE = Scales(speed=3.0, bend=0.7, draft=0.3, local=0.12)

_DEPTHS = DEEPEST + 1


class _Measured(NamedTuple):
    """One tick at one depth and batch bucket."""

    value: float  # median over engines of ln(step time), less the prior mean
    steps: float  # that it rests on
    log_batch: float  # mean logarithm of the batch size


@dataclass
class _Recent:
    """The last measurements at one depth and batch bucket."""

    depth: int
    ticks: deque[_Measured] = field(default_factory=lambda: deque(maxlen=RECENT))
    measured_at: float = 0.0


class _Cell(NamedTuple):
    """Where a depth and batch size belong."""

    key: tuple[int, int]  # depth and batch bucket
    prior_mean: float  # of ln(step time in seconds)


@dataclass(frozen=True)
class StepTimeFit:
    """Fitted step times: natural logarithms of seconds, and how they vary together at each batch size."""

    log_s: Floats  # (depth, bucket)
    covariance: Floats  # (bucket, depth, depth)

    def ratio_deviation(self, depth: int, other: int, bucket: int) -> float:
        """Log standard deviation of the ratio of two depths' step times (all arguments are indices)."""
        c = self.covariance[bucket]
        return float(max(0.0, c[depth, depth] + c[other, other] - 2 * c[depth, other]) ** 0.5)


class StepTimeModel:
    """Step times of one cohort by its depths and batch buckets."""

    def __init__(self, depths: Sequence[int], buckets: BatchBuckets, prior: StepTimes | None = None) -> None:
        self._prior = prior
        self._buckets = buckets
        self._process = GaussianProcess(WITHOUT_PROFILE if prior is None else WITH_PROFILE, tuple(depths), buckets.sizes)
        self._prior_mean = np.array([[self._mean(depth, size) for size in buckets.sizes] for depth in depths])
        self._recent: dict[tuple[int, int], _Recent] = {}  # by depth and bucket
        self._cells: dict[int, _Cell] = {}  # by depth + _DEPTHS * batch size
        self._fit: StepTimeFit | None = None  # None: to be fitted at once
        self._fitted_at = float("-inf")

    def observe(self, now: float, new: StepDelta) -> None:
        """Add the steps that all engines timed in one tick; `now` is in seconds."""
        timed, seconds = np.array(new.timed), np.array(new.seconds)
        use = (timed > 0) & (seconds > 0)
        if not use.any():
            return
        timed, seconds = timed[use], seconds[use]
        depth, batch = np.array(new.depth)[use], np.array(new.batch)[use]
        codes, of = np.unique(depth + _DEPTHS * batch, return_inverse=True)  # numbers sort faster than pairs
        cells = [self._cell(code) for code in codes.tolist()]
        values = np.log(seconds / timed) - np.array([cell.prior_mean for cell in cells])[of]
        keys = sorted({cell.key for cell in cells})
        number = {key: i for i, key in enumerate(keys)}
        group = np.array([number[cell.key] for cell in cells])[of]
        steps = np.bincount(group, timed)
        log_batch = np.bincount(group, timed * np.log(batch)) / steps
        value = weighted_medians(values, timed, group)
        for key, *measured in zip(keys, value.tolist(), steps.tolist(), log_batch.tolist(), strict=True):
            if key not in self._recent:
                self._recent[key] = _Recent(key[0])
                self._fit = None
            self._recent[key].ticks.append(_Measured(*measured))
            self._recent[key].measured_at = now

    def fit(self, now: float) -> StepTimeFit:
        """The fit. It is renewed every `REFIT_S` seconds, and at once after a measurement at a new depth or bucket."""
        if self._fit is None or now - self._fitted_at >= REFIT_S:
            self._fit, self._fitted_at = self._fitted(now), now
        return self._fit

    def _fitted(self, now: float) -> StepTimeFit:
        if not self._recent:
            return StepTimeFit(self._prior_mean, self._process.prior_covariance)
        mean, covariance = self._process.posterior(self._measurements(now))
        variance = np.einsum("sdd->ds", covariance)
        return StepTimeFit(monotone(self._prior_mean + mean, 1.0 / np.maximum(variance, 1e-8)), covariance)

    def _measurements(self, now: float) -> Measurements:
        """One for each depth and bucket that was measured."""
        seen = list(self._recent.values())
        of = np.repeat(np.arange(len(seen)), [len(recent.ticks) for recent in seen])
        values, weights, log_batch = np.array([measured for recent in seen for measured in recent.ticks]).T
        steps = np.bincount(of, weights)
        age_s = np.maximum(0.0, now - np.array([recent.measured_at for recent in seen]))
        return Measurements(
            u=np.log1p(np.array([recent.depth for recent in seen], dtype=float)),
            v=np.bincount(of, weights * log_batch) / steps,
            value=weighted_medians(values, weights, of),
            variance=STEP_NOISE**2 / steps + TICK_NOISE**2 + DRIFT**2 * age_s / 60.0,
        )

    def _cell(self, code: int) -> _Cell:
        if code not in self._cells:
            batch, depth = divmod(code, _DEPTHS)
            self._cells[code] = _Cell((depth, self._buckets.find(batch)), self._mean(depth, batch))
        return self._cells[code]

    def _mean(self, depth: int, batch: float) -> float:
        if self._prior is not None:
            return log(self._prior.ms(depth, batch) / 1e3)
        return log(0.01) + 0.25 * log(batch) + 0.4 * log(1 + depth)
