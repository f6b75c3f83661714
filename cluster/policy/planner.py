"""The plans of a cohort's engines: a table and a reason for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.messages.directive import DepthTable
from cluster.policy import explanation
from cluster.policy.arrays import Floats, Indices
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.exploration.exploration import Exploration
from cluster.policy.goodput import GoodputEstimate
from cluster.policy.plan import Plan

REASON_S = 1.0
"""How old the figures in a reason may be, in seconds."""
SPREAD = 8
"""Number of different times at which reasons of new engines are renewed, so that no tick has to write them for a whole fleet."""
TABLES = 10_000
"""Most tables kept, so that engines with equal choices share one."""


@dataclass
class _Planned:
    plan: Plan
    at: float


class Planner:
    """Turns choices into plans, and keeps each plan until its table changes or its reason gets old."""

    def __init__(self, depths: Sequence[int], buckets: BatchBuckets) -> None:
        self._depths = depths
        self._buckets = buckets
        self._tables: dict[bytes, DepthTable] = {}
        self._planned: dict[str, _Planned] = {}

    def plans(
        self,
        now: float,
        engines: Sequence[str],
        estimate: GoodputEstimate,
        chosen: Indices,
        latest: Floats,
        exploration: Exploration | None,
    ) -> dict[str, Plan]:
        """A plan for each engine. `chosen` and `latest` (shares of its latest steps) are by (engine, bucket)."""
        plans = {}
        main_bucket = latest.argmax(axis=1).tolist()
        for i, engine in enumerate(engines):
            if exploration is not None and exploration.engine == engine:
                plans[engine] = Plan(self._table(exploration.chosen(chosen[i])), exploration.reason, explores=True)
                continue
            table, planned = self._table(chosen[i]), self._planned.get(engine)
            if planned is None or planned.plan.table is not table or now - planned.at >= REASON_S:
                bucket = main_bucket[i]
                plan = Plan(table, explanation.of_choice(estimate, i, bucket, int(chosen[i, bucket])))
                head_start_s = (i % SPREAD) / SPREAD * REASON_S if planned is None else 0.0
                planned = self._planned[engine] = _Planned(plan, now - head_start_s)
            plans[engine] = planned.plan
        return plans

    def forget(self, engine: str) -> None:
        """Drop an engine that is gone."""
        self._planned.pop(engine, None)

    def _table(self, chosen: Indices) -> DepthTable:
        """The table of one engine's choices by bucket."""
        key = chosen.tobytes()
        if key not in self._tables:
            if len(self._tables) >= TABLES:
                self._tables.clear()
            depths = {1: self._depths[chosen[0]]}
            last = depths[1]
            for floor, k in zip(self._buckets.floors, chosen.tolist(), strict=True):
                if self._depths[k] != last:
                    depths[floor] = last = self._depths[k]
            self._tables[key] = DepthTable(depth_by_batch=depths)
        return self._tables[key]
