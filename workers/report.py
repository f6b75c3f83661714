"""An engine's report, put together from the counters of its ranks."""

from __future__ import annotations

from typing import Any

from cluster.protocol import Acceptance, DraftWork, RankState, StepTime
from workers.counters import Counters


def counted(ranks: list[Counters]) -> dict[str, Any]:
    """The counted fields of an `EngineReport`. All ranks run the same steps, so rank 0 speaks for the engine."""
    first = ranks[0]
    deepest = len(first.candidates) - 1
    return {
        "depth": first.get("depth"),
        "candidate_depths": tuple(int(d) for d in first.candidates.nonzero()[0]),
        "acceptance": tuple(Acceptance(reached=int(first.reached[i]), accepted=int(first.accepted[i])) for i in range(deepest)),
        "steps": tuple(
            StepTime(
                depth=int(depth),
                batch=int(first.sizes[size]),
                steps=int(first.step_count[depth, size]),
                timed=int(first.timed_count[depth, size]),
                seconds=float(first.seconds[depth, size]),
            )
            for depth, size in zip(*first.step_count.nonzero(), strict=True)
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
