"""What is known about one engine at a tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp

import numpy as np

from cluster.policy.arrays import Floats, Indices, Mask
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.goodput import GoodputEstimate, expected_tokens
from cluster.policy.step_time import StepTimeFit

LEAST_SHARE = 0.02
"""Share of an engine's steps below which it does not explore at a batch bucket."""


@dataclass(frozen=True)
class EngineView:
    """One engine's estimates and present depths. Depths and batch buckets are indices."""

    depths: tuple[int, ...]
    buckets: BatchBuckets
    acceptance: Floats  # by position
    deviation: Floats  # by position
    log_rate: Floats  # by (depth, bucket); see GoodputEstimate
    step_times: StepTimeFit
    runnable: Mask  # by (depth, bucket)
    chosen: Indices  # by bucket
    shares: Mapping[int, float]  # of its latest steps, by bucket; only buckets that it ran in
    undecided: bool  # whether it has shown drafts, but too few to tell

    @cached_property
    def step_s(self) -> float:
        """Mean time of its latest steps, in seconds."""
        return sum(share * exp(self.step_times.log_s[self.chosen[bucket], bucket]) for bucket, share in self.shares.items())

    def main_buckets(self) -> list[int]:
        """Buckets in which enough of its steps ran."""
        return [bucket for bucket, share in self.shares.items() if share >= LEAST_SHARE]

    def current(self, bucket: int) -> int:
        return int(self.chosen[bucket])

    def goodput(self, bucket: int, depth: int) -> float:
        """Logarithm of the goodput, up to a constant of the bucket."""
        return float(self.log_rate[depth, bucket])

    def gain(self, bucket: int, depth: int) -> float:
        """Logarithm of the goodput relative to that of the present depth."""
        return self.goodput(bucket, depth) - self.goodput(bucket, self.current(bucket))

    def hopeful_goodput(self, bucket: int, acceptance: Floats) -> Floats:
        """`goodput` by depth, with this acceptance at positions that the present depth does not show."""
        seen = self.depths[self.current(bucket)]
        mixed = np.concatenate([self.acceptance[:seen], np.clip(acceptance[seen:], 0.0, 0.99)])
        result: Floats = np.log(expected_tokens(mixed, self.depths)) - self.step_times.log_s[:, bucket]
        return result


@dataclass(frozen=True)
class EngineViews:
    """The views of a cohort's engines, made when asked for. Arrays are by engine first."""

    engines: Sequence[str]
    estimate: GoodputEstimate
    chosen: Indices  # by (engine, bucket)
    latest: Floats  # shares of each engine's latest steps, by (engine, bucket)

    def of(self, engine: str) -> EngineView:
        i, estimate = self.engines.index(engine), self.estimate
        return EngineView(
            depths=estimate.depths,
            buckets=estimate.buckets,
            acceptance=estimate.acceptance.mean[i],
            deviation=estimate.acceptance.deviation[i],
            log_rate=estimate.log_rate[i],
            step_times=estimate.step_times,
            runnable=estimate.runnable,
            chosen=self.chosen[i],
            shares={bucket: float(self.latest[i, bucket]) for bucket in self.latest[i].nonzero()[0].tolist()},
            undecided=bool(estimate.acceptance.undecided[i]),
        )
