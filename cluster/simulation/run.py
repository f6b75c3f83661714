"""Steps that a simulated engine ran."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.simulation.world import TrueStep


@dataclass(frozen=True)
class Run:
    """Steps in a row on one engine, alike in all respects."""

    engine: int
    phase: int
    start: float  # seconds since the first step
    steps: int
    batch: int
    done: TrueStep
    best: TrueStep
    base: TrueStep | None  # what the table before an exploration would have done; None outside one
    switched: bool  # whether its first step changed the depth

    @property
    def seconds(self) -> float:
        return self.steps * self.done.seconds

    @property
    def tokens(self) -> float:
        return self.steps * self.done.tokens

    @property
    def possible(self) -> float:
        """Tokens that the oracle would have yielded in the same time."""
        return self.best.tokens_in(self.seconds)

    @property
    def lost_to_exploration(self) -> float:
        """Tokens that the table before would have yielded beyond these in the same time."""
        return 0.0 if self.base is None else self.base.tokens_in(self.seconds) - self.tokens
