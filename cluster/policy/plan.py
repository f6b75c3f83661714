"""What a policy is, and the one that needs no measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cluster.messages.directive import DepthTable
from cluster.messages.hello import ServingFacts
from cluster.messages.report import EngineReport


@dataclass(frozen=True)
class Plan:
    """A table for one engine, and why."""

    table: DepthTable
    reason: str
    explores: bool = False  # whether the table departs from the best known one in order to learn


class ReportingEngine(NamedTuple):
    """What is known about an engine that serves."""

    facts: ServingFacts
    report: EngineReport  # the newest one


class Policy(Protocol):
    """Decides for the whole fleet at once, from what it reported."""

    def decide(self, reporting: Mapping[str, ReportingEngine], now: float) -> dict[str, Plan]:
        """Return a plan for every engine in `reporting`. `now` is a monotonic clock in seconds."""
        ...


class FixedDepthPolicy:
    """The same table for every engine, cut down to the depths that each can switch to."""

    def __init__(self, table: DepthTable, reason: str) -> None:
        self._table = table
        self._reason = reason

    def decide(self, reporting: Mapping[str, ReportingEngine], now: float) -> dict[str, Plan]:
        return {name: Plan(clamp(self._table, facts.candidate_depths), self._reason) for name, (facts, _) in reporting.items()}


def clamp(table: DepthTable, candidates: tuple[int, ...]) -> DepthTable:
    """Lower each depth to the deepest candidate that does not exceed it (the shallowest candidate if none does)."""

    def fit(depth: int) -> int:
        return max((c for c in candidates if c <= depth), default=min(candidates))

    return table.model_copy(update={"depth_by_batch": {b: fit(d) for b, d in table.depth_by_batch.items()}})
