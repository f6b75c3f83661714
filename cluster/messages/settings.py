"""What a user may change while the fleet runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from cluster.messages.base import BatchSize, Depth, Message
from cluster.messages.directive import DepthTable

Mode = Literal["auto", "on", "off"]


class PolicySettings(Message):
    """Knobs of the policy. The defaults need no tuning."""

    tpot_limit_ms: float | None = Field(
        None,
        gt=0,
        description="Limit on the time per output token, in ms: a depth that exceeds it is chosen only where all depths do.",
    )
    switch_gain: float = Field(0.02, ge=0, le=1, description="Relative gain in goodput below which a depth is kept.")
    dwell_s: float = Field(
        1.0, ge=0, le=600, description="Least time between changes at one batch size of an engine, in seconds."
    )
    switch_steps: float = Field(
        0.5, ge=0, le=10, description="Assumed cost of changing the depth between two steps, in steps. More makes calmer tables."
    )
    probe_share: float = Field(
        0.01, ge=0, le=0.2, description="Share of the goodput that exploration may cost; 0: never explore."
    )
    probe_shortest_s: float = Field(
        2.0, gt=0, description="Shortest interval between an engine's rechecks of a deeper depth, in seconds."
    )
    probe_longest_s: float = Field(
        20.0, gt=0, description="Longest interval between them, reached while they find nothing better; in seconds."
    )
    half_life_s: float = Field(60.0, gt=0, description="Time in which evidence of acceptance loses half its weight, in seconds.")


class ControllerSettings(Message):
    """The controller's `user_config`: Ray Serve applies a change without restarting anything."""

    mode: Mode = Field("auto", description="auto: the policy decides; on: always speculate; off: never.")
    depth_by_batch: dict[BatchSize, Depth] | None = Field(
        None, description="In mode auto, depth from each listed batch size on. Default: decided by measurement."
    )
    policy: PolicySettings = Field(PolicySettings(), description="Knobs of the measured decision; the defaults need no tuning.")
    depth_when_on: Depth = Field(3, description="In mode on, the depth at every batch size (or the next lower candidate).")
    engines: dict[str, Annotated[int, Field(ge=0, le=1000)]] = Field(
        {}, description="Number of engines of each group named here, in place of its `count`. 0 frees all its GPUs."
    )
    surge: int = Field(
        0, ge=0, le=1000, description="Engines that may live beyond those wanted while a changed configuration is rolled out."
    )
    tick_s: float = Field(0.2, ge=0.02, le=10, description="Time between two directives to an engine, in seconds.")
    lease_s: float = Field(2.0, gt=0, le=600, description="How long a directive holds without renewal, in seconds.")
    deadline_s: float = Field(1.0, gt=0, le=60, description="How long an engine may take to answer a directive, in seconds.")
    health_check_after_s: float = Field(
        5.0,
        gt=0,
        le=600,
        validation_alias=AliasChoices("health_check_after_s", "probe_after_s"),
        description="An engine that has yielded no token for this long is asked to generate one, in seconds. "
        "`probe_after_s`, its former name, is still accepted.",
    )
    hung_after_s: float = Field(
        30.0, gt=0, le=3600, description="An engine that then yields none for this long is hung and is replaced, in seconds."
    )
    start_within_s: float = Field(
        1800.0, gt=0, description="An engine that has its GPUs and does not serve after this long is replaced, in seconds."
    )

    def table(self) -> DepthTable | None:
        """The fixed table of the mode; None where the policy has to decide."""
        if self.mode == "off":
            return DepthTable(enabled=False)
        if self.mode == "on":
            return DepthTable(depth_by_batch={1: self.depth_when_on})
        return None if self.depth_by_batch is None else DepthTable(depth_by_batch=self.depth_by_batch)
