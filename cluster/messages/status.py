"""What the controller knows about the fleet: the answer to `GET /fleet`, and to services that call by a handle."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cluster.messages.base import Message
from cluster.messages.hello import ServingFacts
from cluster.messages.report import EngineReport
from cluster.messages.settings import Mode

EngineState = Literal["waiting", "starting", "serving", "draining", "failed", "unhealthy"]


class EngineStatus(Message):
    """One engine."""

    name: str = Field(description="Its name in the configuration.")
    actor: str = Field(description="Name of its Ray actor; empty while it has none.")
    state: EngineState = Field(description="Whether it takes requests, or how far it is from doing so.")
    detail: str = Field("", description="Why it is in that state.")
    gpus: int | None = Field(ge=0, description="GPUs that it is pinned to; null until an adopted engine has said how many.")
    accept_length: float | None = Field(
        None, description="Tokens that a decode step yields for one request, bonus token included; recent."
    )
    goodput: float | None = Field(None, description="Tokens per second that its decode steps yield; recent.")
    acceptance: tuple[float | None, ...] = Field(
        (), description="Recent chance that position i is accepted, if those before it were."
    )
    in_force_s: float | None = Field(
        None, ge=0, description="Time from sending the last new table until it was read back from all ranks, in seconds."
    )
    facts: ServingFacts | None = Field(None, description="What never changes about it; null until it serves.")
    report_age_s: float | None = Field(None, ge=0, description="Seconds since its last report, when the status was built.")
    report: EngineReport | None = Field(None, description="Its last report.")


class FleetStatus(Message):
    """All engines of the application."""

    age_s: float = Field(0.0, ge=0, description="Seconds since this status was built; it is built at every tick.")
    mode: Mode = Field(description="auto, on or off; see the controller's settings.")
    controller: int = Field(description="Incarnation of the controller, in ns since the epoch.")
    namespace: str = Field(description="Ray namespace of the engine actors.")
    served_model_name: str = Field(description="Name of the model, as clients ask for it.")
    refused: str = Field("", description="Why the last `user_config` was refused; the one before it is in force.")
    engines: tuple[EngineStatus, ...] = Field(description="Engines that are wanted, and engines that are about to go.")

    @property
    def serving(self) -> tuple[EngineStatus, ...]:
        return tuple(engine for engine in self.engines if engine.state == "serving")
