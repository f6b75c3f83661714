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
        "depth": int(first.depth),
        "acceptance": Acceptance(reached=first.reached[:deepest].tolist(), accepted=first.accepted[:deepest].tolist()),
        "steps": StepCounts(
            depth=depths.tolist(),
            batch=first.sizes[sizes].tolist(),
            count=first.step_count[ran].tolist(),
            timed=first.timed_count[ran].tolist(),
            seconds=first.seconds[ran].tolist(),
        ),
        "tokens": int(first.tokens),
        "requests": int(first.requests),
        "switches": int(first.switches),
        "draft": DraftWork(passes=int(first.draft_passes), set_aside=int(first.draft_deferred), writes=int(first.draft_writes)),
        "ranks": tuple(
            RankState(
                rank=rank,
                revision=int(counters.revision),
                at_step=int(counters.at_step),
                depth=int(counters.depth),
                switches=int(counters.switches),
            )
            for rank, counters in enumerate(ranks)
        ),
    }
