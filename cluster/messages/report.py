"""What an engine answers to a directive: all that changes while it lives. What does not is in its `EngineHello`.

Counters only grow while an engine lives, so a lost report costs nothing: a reader takes the difference between two of them.
A table is sent as columns, because Python reads and frees five tuples of numbers much faster than a message for each row.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cluster.messages.base import BatchSize, Columns, Count, Depth, Message
from cluster.messages.directive import Applied


class Load(Message):
    """Requests in one engine."""

    running: int = Field(ge=0, description="Requests in the last decode batch.")
    waiting: int = Field(ge=0, description="Accepted requests that are not in that batch: queued, or in prefill.")
    kv_usage: float = Field(ge=0, description="Share of the KV cache in use, 0 to 1.")


class Acceptance(Columns):
    """Counts by draft position, beginning with the first drafted token's."""

    reached: tuple[Count, ...] = Field(description="Verified tokens at the position whose predecessors were all accepted.")
    accepted: tuple[Count, ...] = Field(description="How many of them were accepted.")


class StepCounts(Columns):
    """Decode steps by depth and padded batch size, a row for each pair that ran."""

    depth: tuple[Depth, ...] = Field(description="Depth of the steps.")
    batch: tuple[BatchSize, ...] = Field(description="Batch size that the steps cost: padded to the CUDA graph if there is one.")
    count: tuple[Count, ...] = Field(description="Steps run.")
    timed: tuple[Count, ...] = Field(description="Steps whose time is known: a decode step came right before.")
    seconds: tuple[Annotated[float, Field(ge=0)], ...] = Field(description="Total time of the timed steps, in seconds.")


class RankState(Message):
    """Readback from one tensor-parallel rank's scheduler process."""

    rank: int = Field(ge=0, description="Its number, from 0.")
    revision: int = Field(ge=0, description="Number of tables put in force in this rank since it started.")
    at_step: int = Field(ge=0, description="Decode steps that this rank had launched when it put the last table in force.")
    depth: Depth = Field(description="Depth of the last decode step.")
    switches: int = Field(ge=0, description="Changes of depth between two decode steps.")


class DraftWork(Message):
    """What the draft did in decode steps, since the engine started."""

    passes: int = Field(0, ge=0, description="Whole passes of the draft model, each with its LM head.")
    set_aside: int = Field(0, ge=0, description="Positions, decoded at depth 0, whose K and V were deferred.")
    writes: int = Field(0, ge=0, description="Times that deferred K and V were computed, for all such positions at once.")


class EngineReport(Message):
    """An engine's answer to a directive. All counters are totals since the engine started."""

    engine: str = Field(description="Name of the engine in the configuration.")
    incarnation: int = Field(ge=0, description="When the engine started, in ns since the epoch; counters restart with it.")
    accepted: bool = Field(description="False if the directive was stale or fenced, and so was ignored.")
    applied: Applied = Field(description="The table in force, and whose it is.")
    load: Load = Field(description="Its present requests.")
    depth: Depth = Field(description="Depth of the last decode step.")
    acceptance: Acceptance = Field(description="Drafts and how many of them were accepted.")
    steps: StepCounts = Field(description="Decode steps and their times.")
    tokens: int = Field(ge=0, description="Tokens that decode steps yielded, bonus tokens included.")
    requests: int = Field(ge=0, description="Decode steps summed over their requests: tokens / requests is the accept length.")
    switches: int = Field(ge=0, description="Changes of depth between two decode steps.")
    draft: DraftWork = Field(DraftWork(), description="What the draft did.")
    ranks: tuple[RankState, ...] = Field(description="Readback of every tensor-parallel rank.")


class NotServing(Message):
    """What an engine answers to a directive while it cannot take one."""

    engine: str = Field(description="Name of the engine in the configuration.")
    state: Literal["starting", "failed"] = Field(description="Whether it will serve, or has given up.")
    detail: str = Field("", description="Progress, or what went wrong.")
