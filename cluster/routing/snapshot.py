"""What an ingress must know about the fleet to route requests: the small part of the status that it fetches all the time."""

from __future__ import annotations

from pydantic import Field

from cluster.messages.base import Message
from cluster.messages.report import Load
from cluster.messages.status import EngineState, FleetStatus


class EngineSnapshot(Message):
    """One engine."""

    name: str = Field(description="Its name in the configuration.")
    actor: str = Field(description="Name of its Ray actor; empty while it has none.")
    state: EngineState = Field(description="Whether it takes requests, or how far it is from doing so.")
    detail: str = Field("", description="Why it is in that state.")
    max_running: int | None = Field(None, ge=1, description="Most requests that it decodes at once; null before it serves.")
    load: Load | None = Field(None, description="Its requests, by its last report.")
    report_age_s: float | None = Field(None, ge=0, description="Seconds since that report, when the snapshot was built.")


class Snapshot(Message):
    """All engines of the application."""

    namespace: str = Field(description="Ray namespace of the engine actors.")
    served_model_name: str = Field(description="Name of the model, as clients ask for it.")
    engines: tuple[EngineSnapshot, ...] = Field(description="Engines that are wanted, and engines that are about to go.")

    @classmethod
    def of(cls, fleet: FleetStatus) -> Snapshot:
        engines = (
            EngineSnapshot(
                name=engine.name,
                actor=engine.actor,
                state=engine.state,
                detail=engine.detail,
                max_running=engine.facts.max_running if engine.facts else None,
                load=engine.report.load if engine.report else None,
                report_age_s=engine.report_age_s,
            )
            for engine in fleet.engines
        )
        return cls(namespace=fleet.namespace, served_model_name=fleet.served_model_name, engines=tuple(engines))

    @property
    def serving(self) -> tuple[EngineSnapshot, ...]:
        return tuple(engine for engine in self.engines if engine.state == "serving")

    def pack(self) -> bytes:
        """Encode it for a `PackedSnapshot`."""
        return self.model_dump_json().encode()


class PackedSnapshot(Message):
    """A snapshot as it is sent. Its content is packed once for all ingresses: pickling a thousand engines takes ten times
    as long as packing them, and Ray pickles what it sends at every fetch."""

    age_s: float = Field(ge=0, description="Seconds from building the snapshot to this fetch.")
    content: bytes = Field(description="A `Snapshot`, packed.")

    def unpack(self) -> Snapshot:
        return Snapshot.model_validate_json(self.content)
