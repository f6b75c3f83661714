"""Messages between the controller, the ingress and the engines.

Every model is frozen and forbids unknown fields, so that two versions that disagree fail loudly. Counters in a report
only grow while an engine lives: a lost report costs nothing, and a reader takes differences between two of them.
Tables in it are columns: five tuples of numbers are read and collected in a fraction of the time of a message for each row.
"""

from __future__ import annotations

import bisect
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

DEEPEST = 16
Depth = Annotated[int, Field(ge=0, le=DEEPEST)]
BatchSize = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]


class Message(BaseModel):
    """Base of all that crosses a process or comes from a user."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DepthTable(Message):
    """The enable flag and a depth for each batch size; what a directive carries and an engine looks up at every step."""

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
    """What the controller wants of one engine, for one lease.

    Directives are ordered by (incarnation, sequence); an engine ignores one that is not newer than the last it took.
    """

    incarnation: int = Field(ge=0, description="When the controller that sent it started, in ns since the epoch.")
    sequence: int = Field(ge=0, description="Counts up with every directive of one controller incarnation.")
    table: DepthTable = Field(description="The enable flag and the depths.")
    lease_s: float = Field(gt=0, description="How long it holds without renewal, in seconds.")
    reason: str = Field("", description="Why, in one line, for people.")

    @property
    def order(self) -> tuple[int, int]:
        return self.incarnation, self.sequence


class Load(Message):
    """Requests in one engine."""

    running: int = Field(ge=0, description="Requests in the last decode batch.")
    waiting: int = Field(ge=0, description="Requests taken that are not in it: queued, or in prefill.")
    max_running: int = Field(ge=1, description="Most requests that the engine decodes at once.")
    kv_usage: float = Field(ge=0, description="Share of the KV cache in use, 0 to 1.")


class Columns(Message):
    """A table; each field is a column, and all are equally long."""

    @model_validator(mode="after")
    def _equally_long(self) -> Columns:
        lengths = {name: len(column) for name, column in self}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must be equally long; got lengths {lengths}")
        return self


class Acceptance(Columns):
    """Counts by draft position, that of the first drafted token first."""

    reached: tuple[Count, ...] = Field(description="Verified tokens at the position whose predecessors were all accepted.")
    accepted: tuple[Count, ...] = Field(description="Those of them that were accepted.")


class StepCounts(Columns):
    """Decode steps by depth and padded batch size, a row for each pair that ran."""

    depth: tuple[Depth, ...] = Field(description="Depth of the steps.")
    batch: tuple[BatchSize, ...] = Field(description="Batch size that was paid for: padded to the CUDA graph where there is one.")
    count: tuple[Count, ...] = Field(description="Steps run.")
    timed: tuple[Count, ...] = Field(description="Steps whose time is known: a decode step came right before.")
    seconds: tuple[Annotated[float, Field(ge=0)], ...] = Field(description="Total time of the timed steps, in seconds.")


class Applied(Message):
    """What is in force in the scheduler of one engine."""

    source: Literal["start", "controller", "fallback"] = Field(
        description="Whose table: the engine's own at start, a controller's, or the fallback after a lease ran out."
    )
    incarnation: int = Field(0, ge=0, description="Of the directive in force; 0 if none.")
    sequence: int = Field(0, ge=0, description="Of the directive in force; 0 if none.")
    table: DepthTable = Field(description="The table that decode steps follow.")
    reason: str = Field("", description="The directive's reason, or why the fallback holds.")
    age_s: float = Field(0.0, ge=0, description="Seconds since the last directive was taken.")


class RankState(Message):
    """Readback from one tensor-parallel rank's scheduler process."""

    rank: int = Field(ge=0, description="Its number, from 0.")
    revision: int = Field(ge=0, description="Counts tables put in force in this rank since it started.")
    at_step: int = Field(ge=0, description="Decode steps this rank had launched when it put the last one in force.")
    depth: Depth = Field(description="Depth of the last decode step.")
    switches: int = Field(ge=0, description="Changes of depth between two decode steps.")


class DraftWork(Message):
    """What the draft did in decode steps, since the engine started."""

    passes: int = Field(0, ge=0, description="Whole passes of the draft model, each with its LM head.")
    set_aside: int = Field(0, ge=0, description="Positions, decoded at depth 0, whose K and V were put off.")
    writes: int = Field(0, ge=0, description="Times that K and V put off were computed, for all such positions at once.")


class EngineFacts(Message):
    """What was settled when the engine started."""

    off: str = Field("", description="How steps at depth 0 keep the draft's KV cache complete, and why not cheaper if so.")
    graph_sizes: dict[Depth, tuple[BatchSize, ...]] = Field({}, description="Batch sizes with a CUDA graph, by depth.")
    state_gib: dict[Depth, float] = Field({}, description="GPU memory of each depth's graphs and attention buffers, in GiB.")
    step_ms: dict[Depth, dict[BatchSize, float]] = Field(
        {}, description="Step times known at the start, by depth and batch size, in ms: a profile, or measured by the engine."
    )


class EngineReport(Message):
    """An engine's answer to a directive. All counters are totals since the engine started."""

    engine: str = Field(description="Name of the engine in the configuration.")
    incarnation: int = Field(ge=0, description="When the engine started, in ns since the epoch; counters restart with it.")
    accepted: bool = Field(description="False if the directive was stale or fenced and so ignored.")
    applied: Applied = Field(description="The table in force, and whose it is.")
    load: Load = Field(description="Its requests now.")
    depth: Depth = Field(description="Depth of the last decode step.")
    candidate_depths: tuple[Depth, ...] = Field(description="Depths that the engine can switch to.")
    batch_sizes: tuple[BatchSize, ...] = Field(description="CUDA graph batch sizes that steps are padded to; empty: none.")
    acceptance: Acceptance = Field(description="Drafts and how many of them were accepted.")
    steps: StepCounts = Field(description="Decode steps and their times.")
    tokens: int = Field(ge=0, description="Tokens that decode steps yielded, bonus tokens included.")
    requests: int = Field(ge=0, description="Decode steps summed over their requests: tokens / requests is the accept length.")
    switches: int = Field(ge=0, description="Changes of depth between two decode steps.")
    draft: DraftWork = Field(DraftWork(), description="What the draft did.")
    facts: EngineFacts = Field(EngineFacts(), description="What was settled when the engine started.")
    ranks: tuple[RankState, ...] = Field(description="Readback of every tensor-parallel rank.")


class NotServing(Message):
    """What an engine answers to a directive while it cannot take one."""

    engine: str = Field(description="Name of the engine in the configuration.")
    state: Literal["starting", "failed"] = Field(description="Whether it will serve, or has given up.")
    detail: str = Field("", description="Progress, or what went wrong.")


EVENT_STREAM = "text/event-stream"
"""Content type of server-sent events."""


class ResponseHead(Message):
    """First item of an engine's answer to a request; the body follows as bytes. An error comes as an `ApiError` instead."""

    media_type: str = Field("application/json", description="Content type of the body.")


class ApiError(Message):
    """An error in OpenAI's shape, answered instead of a response."""

    status: int = Field(ge=400, le=599, description="HTTP status.")
    message: str = Field(description="What was wrong, and what to do.")
    type: str = Field("invalid_request_error", description="OpenAI's error type.")
    param: str | None = Field(None, description="The field at fault, if one is.")
    code: str | None = Field(None, description="OpenAI's error code, if it has one.")
    retry_after_s: int | None = Field(None, ge=1, description="After how long to try again, in seconds: the header Retry-After.")

    @classmethod
    def from_validation(cls, error: ValidationError) -> ApiError:
        """What is wrong with a body, and where: the first of those that lie deepest, which of a union is the likely one."""
        first = max(error.errors(include_url=False, include_input=False), key=lambda found: len(found["loc"]))
        field = ".".join(str(part) for part in first["loc"])
        return cls(status=400, message=f"{field or 'body'}: {first['msg']}", param=field or None)

    def body(self) -> dict[str, dict[str, str | None]]:
        return {"error": self.model_dump(exclude={"status", "retry_after_s"})}
