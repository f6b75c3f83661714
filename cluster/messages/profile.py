"""Profiles: measured times of a decode step by depth and batch size, from which the cost model starts."""

from __future__ import annotations

from bisect import bisect_left
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from cluster.messages.base import BatchSize, Depth, Message

Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
StepTable = Annotated[dict[Depth, Annotated[dict[BatchSize, Milliseconds], Field(min_length=1)]], Field(min_length=1)]


class StepTimes(Message):
    """Time of a decode step by depth and batch size: linear between listed batch sizes, and with the last slope above them."""

    step_ms: StepTable = Field(description="Milliseconds of a step: {depth: {batch size: time}}.")

    @field_validator("step_ms")
    @classmethod
    def _sorted(cls, table: dict[int, dict[int, float]]) -> dict[int, dict[int, float]]:
        return {depth: dict(sorted(row.items())) for depth, row in sorted(table.items())}

    @property
    def depths(self) -> tuple[int, ...]:
        return tuple(self.step_ms)

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes that any depth lists."""
        return tuple(sorted({batch for row in self.step_ms.values() for batch in row}))

    def covers(self, depth: int, batch: int) -> bool:
        """Whether the depth lists batch sizes around this one. A size beyond all listed ones counts as the nearest listed one."""
        row = self.step_ms.get(depth)
        if row is None:
            return False
        inside = min(max(batch, self.batches[0]), self.batches[-1])
        return min(row) <= inside <= max(row)

    def ms(self, depth: int, batch: float) -> float:
        """Milliseconds of a step. The time at an unlisted depth lies on the line through its two nearest neighbours."""
        if depth in self.step_ms:
            return _line(self.step_ms[depth], batch)
        return _line({listed: _line(row, batch) for listed, row in self.step_ms.items()}, depth)


class Profile(StepTimes):
    """A measured table, and what it was measured on."""

    about: str = Field(description="What was measured.")
    hardware: str = Field(description="On what machine.")
    software: str = Field(description="With which versions.")
    model: str = Field(description="Target and draft.")
    method: str = Field("", description="How.")
    measured: str = Field("", description="When (ISO date).")

    @classmethod
    def load(cls, name: str) -> Profile:
        """Read a packaged profile by its name, or any other by its path (which ends in .json)."""
        if name.endswith(".json"):
            return cls.model_validate_json(Path(name).read_text())
        if name not in packaged():
            raise ValueError(
                f"no packaged profile is called {name!r}; name one of {', '.join(packaged())}, or the path of a .json"
            )
        return cls.model_validate_json((files("cluster") / "profiles" / f"{name}.json").read_text())


def packaged() -> tuple[str, ...]:
    """Names of the profiles that come with the package."""
    return tuple(
        sorted(p.name.removesuffix(".json") for p in (files("cluster") / "profiles").iterdir() if p.name.endswith(".json"))
    )


def _line(points: dict[int, float], x: float) -> float:
    """Piecewise linear through sorted points: flat before the first, and with the last slope after the last (never below 0)."""
    xs = list(points)
    if x <= xs[0] or len(xs) == 1:
        return points[xs[0]]
    right = min(max(1, bisect_left(xs, x)), len(xs) - 1)
    x0, x1 = xs[right - 1], xs[right]
    y0, y1 = points[x0], points[x1]
    y = y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return y if y > 0 else min(y0, y1)
