"""What the controller tells an engine to do, and what the engine has put in force."""

from __future__ import annotations

import bisect
from typing import Literal

from pydantic import Field, field_validator

from cluster.messages.base import BatchSize, Depth, Message


class DepthTable(Message):
    """The enable flag and a depth for each batch size. A directive carries it; an engine looks it up at every step."""

    enabled: bool = Field(True, description="Whether to speculate at all; false means depth 0 at every batch size.")
    depth_by_batch: dict[BatchSize, Depth] = Field(
        {1: 0},
        description="Depth from this batch size on, up to the next listed one. Must list batch size 1.",
    )

    @field_validator("depth_by_batch")
    @classmethod
    def _covers_all_batches(cls, table: dict[int, int]) -> dict[int, int]:
        if 1 not in table:
            raise ValueError(f"depth_by_batch must list batch size 1, so that every batch has a depth; got {sorted(table)}")
        return dict(sorted(table.items()))

    def depth(self, batch: int) -> int:
        """Depth for a decode batch of `batch` requests (padded, where the engine pads)."""
        if not self.enabled:
            return 0
        sizes = list(self.depth_by_batch)
        return self.depth_by_batch[sizes[max(0, bisect.bisect_right(sizes, batch) - 1)]]


class Directive(Message):
    """The table that one engine is to follow, for one lease.

    Directives are ordered by (incarnation, sequence). An engine ignores one that is not newer than the last it accepted.
    """

    incarnation: int = Field(ge=0, description="When the controller that sent it started, in ns since the epoch.")
    sequence: int = Field(ge=0, description="Grows with every directive of one controller incarnation.")
    table: DepthTable = Field(description="The enable flag and the depths.")
    lease_s: float = Field(gt=0, description="How long it holds without renewal, in seconds.")
    reason: str = Field("", description="Why, in one line, for people.")

    @property
    def order(self) -> tuple[int, int]:
        return self.incarnation, self.sequence


class Applied(Message):
    """What is in force in the scheduler of one engine."""

    source: Literal["start", "controller", "fallback"] = Field(
        description="Whose table: the engine's own at start, a controller's, or the fallback after a lease ran out."
    )
    incarnation: int = Field(0, ge=0, description="Of the directive in force; 0 if none.")
    sequence: int = Field(0, ge=0, description="Of the directive in force; 0 if none.")
    table: DepthTable = Field(description="The table that decode steps follow.")
    reason: str = Field("", description="The directive's reason, or why the fallback holds.")
    age_s: float = Field(0.0, ge=0, description="Seconds since the last directive was accepted.")
