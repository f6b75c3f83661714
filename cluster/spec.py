"""What one engine is made of: the message from which an engine actor starts."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import Field, model_validator

from cluster.protocol import Depth, DepthTable, Message


class EngineSpec(Message):
    """One engine. Two specs that differ in anything name two different engines (see `actor_name`)."""

    name: str = Field(description="For people; unique in an application.")
    model: str = Field(description="Path or Hugging Face id of the target model; `tiny` is the packaged pair.")
    draft_model: str | None = Field(None, description="Path or id of the EAGLE-3 draft; `tiny` brings its own.")
    served_model_name: str = Field(description="Name that clients ask for.")
    device: Literal["cuda", "cpu"] = Field("cuda", description="Where it runs.")
    tensor_parallel: int = Field(1, ge=1, description="GPUs (on the CPU: processes) that one engine is spread over.")
    candidate_depths: tuple[Depth, ...] = Field(
        (0, 1, 2, 3, 5, 7), min_length=1, description="Depths that it can switch between."
    )
    fallback: DepthTable = Field(description="Table to follow before a directive comes and after its lease ran out.")
    profile: str | None = Field(
        None, description="Step times known beforehand: a packaged profile's name, the path of a .json, or `startup`: measured."
    )
    orphan_after_s: float = Field(60.0, gt=0, description="Without any controller for this long it ends itself, in seconds.")
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
    def actor_name(self) -> str:
        """Name of its actor. Holds a digest of the spec, so that a changed engine is never taken for the old one."""
        return f"{self.name}-{hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]}"
