"""What the controller knows about the fleet: its answer to `GET /fleet` and to other services."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cluster.messages.base import Message
from cluster.messages.report import EngineReport
from cluster.messages.settings import Mode

EngineState = Literal["waiting", "starting", "serving", "draining", "failed", "unhealthy"]


class EngineStatus(Message):
    """One engine."""

    name: str = Field(description="Its name in the configuration.")
    actor: str = Field(description="Name of its Ray actor; empty while it has none.")
    state: EngineState = Field(description="Whether it takes requests, or how far it is from that.")
    detail: str = Field("", description="Why it is in that state.")
    gpus: int | None = Field(ge=0, description="GPUs that it is pinned to; null while an adopted engine has not said so.")
    accept_length: float | None = Field(
        None, description="Tokens a decode step yields for one request, bonus token included; recent."
    )
    goodput: float | None = Field(None, description="Tokens a second that its decode steps yield; recent.")
    acceptance: tuple[float | None, ...] = Field(
        (), description="Recent chance that position i is accepted, if those before it were."
    )
    in_force_s: float | None = Field(
        None, ge=0, description="From sending the last new table to having read back that it is in force, in seconds."
    )
    report_age_s: float | None = Field(None, ge=0, description="Seconds since its last report.")
    report: EngineReport | None = Field(None, description="Its last report.")


class FleetStatus(Message):
    """All engines of the application."""

    mode: Mode = Field(description="auto, on or off; see the controller's settings.")
    controller: int = Field(description="Incarnation of the controller, in ns since the epoch.")
    namespace: str = Field(description="Ray namespace of the engine actors.")
    served_model_name: str = Field(description="Name of the model, as clients ask for it.")
    refused: str = Field("", description="Why the last `user_config` is not followed; the one before it is.")
    engines: tuple[EngineStatus, ...] = Field(description="Those that are wanted, and those that are about to go.")

    @property
    def serving(self) -> tuple[EngineStatus, ...]:
        return tuple(engine for engine in self.engines if engine.state == "serving")
