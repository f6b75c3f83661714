"""A Gaussian process over (depth, batch size), for the logarithm of step times.

Its covariance keeps four things apart: the machine's overall speed, the bend over batch sizes, the price of a draft step, and
what is special to one depth. So a measurement at one place teaches as much about another one as it should:

    cov((k, b), (k', b')) = speed^2 + bend^2 W + draft^2 u u' W + local^2 [k = k'] N,
    u = ln(1 + k),  v = ln b,  W = exp(-(v - v')^2 / 2 far^2),  N = exp(-(v - v')^2 / 2 near^2)

The posterior is that of Gaussian process regression (Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006,
algorithm 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster.policy.arrays import Floats

FAR, NEAR = 2.0, 0.7  # reach over batch sizes, as a natural logarithm of their ratio


class Scales(NamedTuple):
    """Prior standard deviations of the process's parts, each of a natural logarithm of a time."""

    speed: float
    bend: float
    draft: float
    local: float


@dataclass(frozen=True)
class Measurements:
    """Measured values, less the prior mean. All arrays are by measurement."""

    u: Floats  # ln(1 + depth)
    v: Floats  # ln(batch size)
    value: Floats
    variance: Floats  # of the noise


class GaussianProcess:
    """The process on a grid of depths and batch sizes."""

    def __init__(self, scales: Scales, depths: tuple[int, ...], batches: tuple[float, ...]) -> None:
        self._scales = scales
        self._u = np.log1p(np.array(depths, dtype=float))
        self._v = np.log(np.array(batches, dtype=float))
        # For each batch size only the covariance between depths is needed: blocks of (depth, depth).
        u = np.tile(self._u, (len(batches), 1))
        v = np.tile(self._v[:, None], (1, len(depths)))
        self.prior_covariance = self._covariance(u[:, :, None], v[:, :, None], u[:, None, :], v[:, None, :])
        """By (batch, depth, depth)."""

    def posterior(self, seen: Measurements) -> tuple[Floats, Floats]:
        """Mean less the prior mean, by (depth, batch), and covariance, by (batch, depth, depth)."""
        depths, batches = len(self._u), len(self._v)
        u, v = np.repeat(self._u, batches), np.tile(self._v, depths)
        between = self._covariance(seen.u[:, None], seen.v[:, None], seen.u[None, :], seen.v[None, :]) + np.diag(seen.variance)
        across = self._covariance(u[:, None], v[:, None], seen.u[None, :], seen.v[None, :])
        root = np.linalg.cholesky(between)
        half = np.linalg.solve(root, across.T)
        surprises = np.linalg.solve(root, seen.value)  # standard normal if the prior is right
        mean: Floats = (half.T @ surprises).reshape(depths, batches)
        halves = half.reshape(len(seen.value), depths, batches)
        covariance = self.prior_covariance - np.einsum("nds,nes->sde", halves, halves)
        # A prior that was wrong where it was measured is trusted less elsewhere.
        covariance = covariance * max(1.0, (1.0 + float(surprises @ surprises)) / (1.0 + len(seen.value)))
        return mean, covariance

    def _covariance(self, u: Floats, v: Floats, u2: Floats, v2: Floats) -> Floats:
        s = self._scales
        distance = (v - v2) ** 2
        wide, near = np.exp(-distance / (2 * FAR**2)), np.exp(-distance / (2 * NEAR**2))
        same = np.abs(u - u2) < 1e-9
        result: Floats = s.speed**2 + (s.bend**2 + s.draft**2 * u * u2) * wide + s.local**2 * same * near
        return result
