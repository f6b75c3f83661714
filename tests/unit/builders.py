"""Messages with all but the interesting fields filled in."""

from __future__ import annotations

from typing import Any

from cluster.messages.directive import Applied, DepthTable, Directive
from cluster.messages.hello import ServingFacts
from cluster.messages.report import Acceptance, EngineReport, Load, RankState, StepCounts
from cluster.messages.spec import EngineSpec
from cluster.policy.plan import ReportingEngine
from cluster.routing.routed_request import RoutedRequest


def table(depths: dict[int, int] | None = None, enabled: bool = True) -> DepthTable:
    return DepthTable(enabled=enabled, depth_by_batch=depths or {1: 3})


def directive(sequence: int = 1, incarnation: int = 1, depths: dict[int, int] | None = None, lease_s: float = 2.0) -> Directive:
    return Directive(incarnation=incarnation, sequence=sequence, table=table(depths), lease_s=lease_s, reason="because")


def spec(**fields: Any) -> EngineSpec:
    fields = {"name": "engine-0", "model": "tiny", "served_model_name": "tiny", "fallback": DepthTable(enabled=False), **fields}
    return EngineSpec(**fields)


def steps(*rows: tuple[int, int, int, int, float]) -> StepCounts:
    """From rows of depth, batch size, steps, timed steps and seconds."""
    depth, batch, count, timed, seconds = zip(*rows, strict=True)
    return StepCounts(depth=depth, batch=batch, count=count, timed=timed, seconds=seconds)


def facts(**fields: Any) -> ServingFacts:
    sizes = {"candidate_depths": (0, 1, 3), "batch_sizes": (1, 2, 4, 8), "max_running": 48}
    return ServingFacts(**{"incarnation": 1, **sizes, **fields})


def report(engine: str = "engine-0", **fields: Any) -> EngineReport:
    values: dict[str, Any] = {
        "engine": engine,
        "incarnation": 1,
        "accepted": True,
        "applied": Applied(source="controller", table=table()),
        "load": Load(running=0, waiting=0, kv_usage=0.0),
        "depth": 3,
        "acceptance": Acceptance(reached=(0, 0, 0), accepted=(0, 0, 0)),
        "steps": steps((3, 1, 0, 0, 0.0)),
        "tokens": 0,
        "requests": 0,
        "switches": 0,
        "ranks": (RankState(rank=0, revision=1, at_step=0, depth=3, switches=0),),
    }
    return EngineReport(**{**values, **fields})


def routed(samples: int = 1, affinity: bytes | None = None) -> RoutedRequest:
    """A request for the router alone: it has no deadline, since that would need an event loop."""
    return RoutedRequest("completions", b"", samples, affinity, deadline=None)  # type: ignore[arg-type]


def reporting(engine: str = "engine-0", known: ServingFacts | None = None, **fields: Any) -> ReportingEngine:
    return ReportingEngine(known or facts(), report(engine, **fields))
