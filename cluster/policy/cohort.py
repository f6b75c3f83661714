"""Cohorts: engines that are alike, and so learn from each other."""

from __future__ import annotations

from typing import NamedTuple

from cluster.messages.hello import ServingFacts
from cluster.messages.profile import StepTimes
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.batch_history import BatchHistory
from cluster.policy.depth_choice import DepthChoices
from cluster.policy.exploration.explorer import Explorer
from cluster.policy.planner import Planner
from cluster.policy.report_delta import StepDelta
from cluster.policy.runnable_depths import RunnableDepths
from cluster.policy.step_time import StepTimeModel


class CohortKey(NamedTuple):
    """What the engines of a cohort have in common."""

    group: str  # of the configuration; its engines are called GROUP-0, GROUP-1, ...
    depths: tuple[int, ...]  # candidate depths, ascending
    batch_sizes: tuple[int, ...]  # that steps are padded to; empty: none
    max_running: int

    @classmethod
    def of(cls, engine: str, facts: ServingFacts) -> CohortKey:
        group = engine.rpartition("-")[0]
        return cls(group, tuple(sorted(facts.candidate_depths)), facts.batch_sizes, facts.max_running)


class Cohort:
    """The models that a cohort's engines share, and what is remembered of each engine."""

    def __init__(self, key: CohortKey, prior: StepTimes | None) -> None:
        """`prior` holds step times to start from."""
        self.key = key
        self.depths = key.depths
        self.buckets = BatchBuckets.of(key.batch_sizes, key.max_running)
        self.step_times = StepTimeModel(self.depths, self.buckets, prior)
        self.batch_history = BatchHistory(self.buckets)
        self.runnable_depths = RunnableDepths(self.depths, self.buckets)
        self.choices = DepthChoices(self.buckets)
        self.explorer = Explorer()
        self.planner = Planner(self.depths, self.buckets)

    def observe(self, now: float, new: StepDelta) -> None:
        """Learn from the steps of one tick: how long they took, at which batch sizes, and at which depths."""
        self.step_times.observe(now, new)
        self.batch_history.observe(now, new)
        self.runnable_depths.observe(now, new)

    def forget(self, engine: str) -> None:
        """Drop an engine that is gone. What the cohort learnt from it stays."""
        self.batch_history.forget(engine)
        self.choices.forget(engine)
        self.explorer.forget(engine)
        self.planner.forget(engine)
