"""What one engine is made of: an engine actor starts from this message."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from cluster.messages.base import Depth, Message
from cluster.messages.directive import DepthTable


class EngineSpec(Message):
    """One engine. Two specs that differ in anything have different digests."""

    name: str = Field(description="Name of the engine; unique in an application.")
    model: str = Field(description="Path or Hugging Face id of the target model; `tiny` is the packaged pair.")
    draft_model: str | None = Field(None, description="Path or id of the EAGLE-3 draft; `tiny` has its own.")
    served_model_name: str = Field(description="Name that clients ask for.")
    device: Literal["cuda", "cpu"] = Field("cuda", description="Where it runs.")
    tensor_parallel: int = Field(1, ge=1, description="GPUs (on the CPU: processes) that one engine is spread over.")
    candidate_depths: tuple[Depth, ...] = Field(
        (0, 1, 2, 3, 5, 7), min_length=1, description="Depths that it can switch between."
    )
    fallback: DepthTable = Field(description="Table in force before the first directive, and after a lease has run out.")
    profile: str | None = Field(
        None, description="Step times known beforehand: a packaged profile's name, the path of a .json, or `startup`: measured."
    )
    orphan_after_s: float = Field(60.0, gt=0, description="It ends itself after this long without any controller, in seconds.")
    drain_s: float = Field(60.0, ge=0, description="How long running requests may take to finish before it ends, in seconds.")
    server_args: dict[str, Any] = Field(default_factory=dict, description="SGLang server arguments, by SGLang's names.")
    environment: dict[str, str] = Field(default_factory=dict, description="Environment variables of its processes.")

    @model_validator(mode="after")
    def _consistent(self) -> EngineSpec:
        if len(set(self.candidate_depths)) != len(self.candidate_depths):
            raise ValueError(f"candidate_depths lists a depth twice: {list(self.candidate_depths)}")
        if 0 not in self.candidate_depths:
            raise ValueError(
                f"candidate_depths must list 0, the depth of an engine that is off; got {list(self.candidate_depths)}"
            )
        unknown = set(self.fallback.depth_by_batch.values()) - set(self.candidate_depths)
        if unknown:
            raise ValueError(f"fallback uses depths {sorted(unknown)}, not among candidate_depths {list(self.candidate_depths)}")
        return self

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel if self.device == "cuda" else 0

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]

    def new_actor_name(self) -> str:
        """A name for one actor of this engine. No name is used twice, so a handle to a dead actor cannot reach the next one."""
        return f"{self.name}-{self.digest}-{uuid.uuid4().hex[:6]}"

    def names(self, actor: str) -> bool:
        """Whether an actor of this name is made of this spec."""
        return actor.rsplit("-", 1)[0] == f"{self.name}-{self.digest}"


def engine_of(actor: str) -> str:
    """Name in the configuration of the engine that an actor is or was."""
    return actor.rsplit("-", 2)[0]


class GroupSpec(Message):
    """Engines that are alike, called NAME-0, NAME-1, and so on."""

    name: str = Field(description="What its engines' names begin with; unique in an application.")
    count: int = Field(ge=0, description="Engines in the group, unless the controller's settings say otherwise.")
    engine: EngineSpec = Field(description="What they are made of; each gets a name of its own.")

    def engines(self, count: int) -> Iterator[EngineSpec]:
        for index in range(count):
            yield self.engine.model_copy(update={"name": f"{self.name}-{index}"})
