"""What a user may change while the fleet runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cluster.goodput import PolicySettings
from cluster.protocol import BatchSize, Depth, DepthTable, Message

Mode = Literal["auto", "on", "off"]


class ControllerSettings(Message):
    """The controller's `user_config`: Ray Serve applies a change without restarting anything."""

    mode: Mode = Field("auto", description="auto: the policy decides; on: always speculate; off: never.")
    depth_by_batch: dict[BatchSize, Depth] | None = Field(
        None, description="In mode auto, depth from each listed batch size on. Default: decided by measurement."
    )
    policy: PolicySettings = Field(PolicySettings(), description="Knobs of the measured decision; the defaults need no tuning.")
    depth_when_on: Depth = Field(3, description="In mode on, the depth at every batch size (or the next lower candidate).")
    tick_s: float = Field(0.2, ge=0.02, le=10, description="Time between two directives to an engine, in seconds.")
    lease_s: float = Field(2.0, gt=0, le=600, description="How long an engine follows a directive unrenewed, in seconds.")
    deadline_s: float = Field(1.0, gt=0, le=60, description="How long an engine may take to answer one, in seconds.")

    def table(self) -> DepthTable | None:
        """The fixed table of the mode; None where the policy has to decide."""
        if self.mode == "off":
            return DepthTable(enabled=False)
        if self.mode == "on":
            return DepthTable(depth_by_batch={1: self.depth_when_on})
        return None if self.depth_by_batch is None else DepthTable(depth_by_batch=self.depth_by_batch)
