"""A scenario: what is true of a simulated fleet, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from cluster.messages.base import BatchSize, Message
from cluster.messages.profile import StepTable, StepTimes

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Probabilities = Annotated[tuple[Probability, ...], Field(min_length=1)]


class Phase(Message):
    """A number of steps of every engine."""

    steps: int = Field(ge=1, description="Decode steps that each engine runs.")
    batch: BatchSize | Annotated[tuple[BatchSize, ...], Field(min_length=1)] = Field(
        description="Requests of a step; a list is cycled step by step."
    )
    acceptance: Probabilities | None = Field(
        None, description="Conditional acceptance by draft position; the last value holds for deeper ones."
    )
    acceptance_by_engine: tuple[Probabilities, ...] | None = Field(None, description="The same, one list for each engine.")

    @model_validator(mode="after")
    def _one_acceptance(self) -> Phase:
        if (self.acceptance is None) == (self.acceptance_by_engine is None):
            raise ValueError("give either acceptance or acceptance_by_engine")
        return self

    @property
    def batches(self) -> tuple[int, ...]:
        """One cycle of batch sizes."""
        return self.batch if isinstance(self.batch, tuple) else (self.batch,)

    def of_engine(self, engine: int) -> tuple[float, ...]:
        """Acceptance by position on one engine."""
        by_engine: Sequence[tuple[float, ...]] | None = self.acceptance_by_engine
        return by_engine[engine] if by_engine is not None else self.acceptance or ()


class Scenario(Message):
    """The truth, and what the policy may know of it beforehand."""

    name: str = Field(min_length=1, description="Repeated in the result.")
    step_ms: StepTable = Field(description="True time of a step in milliseconds: {depth: {batch size: time}}.")
    prior_step_ms: StepTable | Literal["same"] | None = Field(
        None, description="Step times that the policy starts from; `same`: the true ones; null: none."
    )
    engines: int = Field(1, ge=1, le=10_000, description="Engines of the fleet.")
    tick_ms: float = Field(200.0, gt=0, allow_inf_nan=False, description="Time between two exchanges with an engine.")
    noise: float = Field(0.0, ge=0, le=3, allow_inf_nan=False, description="Sigma of a log-normal on each reported step time.")
    seed: int = Field(0, ge=0, description="Seed of everything random.")
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)] = Field(description="One after the other.")

    @classmethod
    def load(cls, path: Path) -> Scenario:
        """Read a file.

        Raises:
            ValueError: if it cannot be read, or is not a scenario; the message names the file and the field.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{path}: {where + ': ' if where else ''}{first['msg']}") from error

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        for i, phase in enumerate(self.phases):
            if phase.acceptance_by_engine is not None and len(phase.acceptance_by_engine) != self.engines:
                lists = len(phase.acceptance_by_engine)
                raise ValueError(f"phases.{i}.acceptance_by_engine: {lists} lists for {self.engines} engines")
            for batch in sorted(set(phase.batches)):
                if not any(self.truth.covers(depth, batch) for depth in self.truth.depths):
                    raise ValueError(f"phases.{i}.batch: step_ms lists no depth around batch size {batch}")
        return self

    @cached_property
    def truth(self) -> StepTimes:
        return StepTimes(step_ms=self.step_ms)

    @property
    def prior(self) -> StepTimes | None:
        if self.prior_step_ms is None:
            return None
        return self.truth if self.prior_step_ms == "same" else StepTimes(step_ms=self.prior_step_ms)

    @cached_property
    def max_batch(self) -> int:
        return max(max(phase.batches) for phase in self.phases)
