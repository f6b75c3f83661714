"""An engine's report, put together from the counters of its ranks."""

from __future__ import annotations

from typing import Any

from cluster.messages.report import Acceptance, DraftWork, RankState, StepCounts
from workers.shared_counters import SharedCounters


def counted(ranks: list[SharedCounters]) -> dict[str, Any]:
    """The counted fields of an `EngineReport`. All ranks run the same steps, so rank 0 speaks for the engine."""
    first = ranks[0]
    deepest = len(first.candidates) - 1
    ran = first.step_count.nonzero()
    depths, sizes = ran
    return {
        "depth": first.get("depth"),
        "acceptance": Acceptance(reached=first.reached[:deepest].tolist(), accepted=first.accepted[:deepest].tolist()),
        "steps": StepCounts(
            depth=depths.tolist(),
            batch=first.sizes[sizes].tolist(),
            count=first.step_count[ran].tolist(),
            timed=first.timed_count[ran].tolist(),
            seconds=first.seconds[ran].tolist(),
        ),
        "tokens": first.get("tokens"),
        "requests": first.get("requests"),
        "switches": first.get("switches"),
        "draft": DraftWork(
            passes=first.get("draft_passes"), set_aside=first.get("draft_set_aside"), writes=first.get("draft_writes")
        ),
        "ranks": tuple(
            RankState(
                rank=rank,
                revision=counters.get("revision"),
                at_step=counters.get("at_step"),
                depth=counters.get("depth"),
                switches=counters.get("switches"),
            )
            for rank, counters in enumerate(ranks)
        ),
    }
