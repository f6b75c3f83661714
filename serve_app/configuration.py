"""The `args` of the application in a Serve YAML. `cluster.messages.settings` has what may change while the fleet runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cluster.messages.base import Depth, Message
from cluster.messages.directive import DepthTable
from cluster.messages.spec import EngineSpec, GroupSpec
from workers.sglang_patch import cpu
from workers.sglang_patch.server_args import TINY, check_server_args


def _known(server_args: dict[str, Any]) -> dict[str, Any]:
    check_server_args(server_args)
    return server_args


ServerArgs = Annotated[dict[str, Any], AfterValidator(_known)]
"""SGLang server arguments that an application may set."""


class EngineGroup(Message):
    """Engines that are alike."""

    name: str = Field("engine", pattern=r"^[a-z][a-z0-9-]{0,30}$", description="Engines are called NAME-0, NAME-1, and so on.")
    count: int = Field(1, ge=1, le=1000, description="Number of engines. The controller's `engines` changes it live.")
    tensor_parallel: int = Field(1, ge=1, le=64, description="GPUs of each engine (on the CPU: processes).")
    server_args: ServerArgs = Field(default_factory=dict, description="SGLang arguments of this group, over the common ones.")


class AppConfig(Message):
    """The fleet as it is deployed. A change restarts the application, but not the engines whose spec stays the same."""

    model: str = Field(description="Path or Hugging Face id of the target model, or `tiny`, the packaged pair.")
    draft_model: str | None = Field(None, description="Path or Hugging Face id of its EAGLE-3 draft. `tiny` has its own.")
    served_model_name: str | None = Field(None, description="Name that clients ask for. Default: `model`.")
    device: Literal["cuda", "cpu"] = Field("cuda", description="Where engines run.")
    engines: tuple[EngineGroup, ...] = Field((EngineGroup(),), min_length=1, description="The engines, group by group.")
    candidate_depths: tuple[Depth, ...] = Field((0, 1, 2, 3, 5, 7), description="Depths that engines can switch between.")
    profile: str | None = Field(
        None,
        description="Step times that engines start with: the name of a packaged profile, the path of a .json, or `startup`: each "
        "engine measures its own for up to 20 s, unless its node has done so before. Default: learnt from traffic alone.",
    )
    fallback: DepthTable = Field(
        DepthTable(enabled=False), description="Depths of engines that hear from no controller. Default: no speculation."
    )
    orphan_after_s: float = Field(
        60.0, gt=0, description="An engine ends itself after this long without a controller, in seconds."
    )
    drain_s: float = Field(
        60.0, ge=0, description="How long running requests may take to finish before their engine is removed, in seconds."
    )
    when_gpus_missing: Literal["wait", "fail"] = Field(
        "wait", description="What to do if the cluster has fewer GPUs than the engines need: wait for more, or refuse to deploy."
    )
    server_args: ServerArgs = Field(default_factory=dict, description="SGLang server arguments of all engines.")
    environment: dict[str, str] = Field(default_factory=dict, description="Environment variables of the engines' processes.")

    @model_validator(mode="after")
    def _consistent(self) -> AppConfig:
        names = [group.name for group in self.engines]
        if len(set(names)) != len(names):
            raise ValueError(f"engines: two groups have the same name: {names}")
        if self.model == TINY and self.draft_model is not None:
            raise ValueError("draft_model: `tiny` has its own draft; leave this out")
        if self.model != TINY and self.draft_model is None:
            raise ValueError(f"draft_model: {self.model} needs an EAGLE-3 draft; name its path or its Hugging Face id")
        # Fails here, with its field's name, rather than in every engine.
        list(self.groups())
        return self

    @property
    def public_name(self) -> str:
        return self.served_model_name or self.model

    @property
    def _environment(self) -> dict[str, str]:
        return self.environment if self.device == "cuda" else {**cpu.environment(), **self.environment}

    def groups(self) -> Iterator[GroupSpec]:
        """One group of specs for each group of engines."""
        for group in self.engines:
            engine = EngineSpec(
                name=group.name,
                model=self.model,
                draft_model=self.draft_model,
                served_model_name=self.public_name,
                device=self.device,
                tensor_parallel=group.tensor_parallel,
                candidate_depths=self.candidate_depths,
                profile=self.profile,
                fallback=self.fallback,
                orphan_after_s=self.orphan_after_s,
                drain_s=self.drain_s,
                server_args={**self.server_args, **group.server_args},
                environment=self._environment,
            )
            yield GroupSpec(name=group.name, count=group.count, engine=engine)

    def specs(self) -> Iterator[EngineSpec]:
        """One spec for each engine."""
        for group in self.groups():
            yield from group.engines(group.count)
