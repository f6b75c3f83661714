"""One exploration: a canary that tries other depths for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.policy.arrays import Indices


@dataclass(frozen=True)
class Exploration:
    """Depths (as indices) that one engine tries, by batch bucket."""

    engine: str
    depths: Mapping[int, int]
    instead_of: Mapping[int, int]
    from_off: bool  # whether it is off in all these buckets otherwise
    until: float  # on the clock of `now`, in seconds
    cost_s: float  # goodput that it is expected to cost, as seconds of the engine
    step_s: float  # mean time of the engine's steps, in seconds
    reason: str

    def chosen(self, present: Indices) -> Indices:
        """The engine's depths by bucket while it explores; `present` are those that it returns to."""
        tried = present.copy()
        tried[list(self.depths)] = list(self.depths.values())
        return tried
