"""What an engine's processes hand each other once, at the start, as files beside the counters.

The actor tells the schedulers the step times that are known; rank 0's scheduler tells the actor what it has settled.
"""

from __future__ import annotations

from pathlib import Path

from cluster.messages.hello import EngineFacts
from cluster.messages.profile import StepTimes

_STEP_TIMES, _FACTS = "step_times.json", "facts.json"


def write_step_times(folder: Path, known: StepTimes | None) -> None:
    if known is not None:
        (folder / _STEP_TIMES).write_text(known.model_dump_json(include={"step_ms"}))


def read_step_times(folder: Path) -> StepTimes | None:
    """None if none are known."""
    path = folder / _STEP_TIMES
    return StepTimes.model_validate_json(path.read_text()) if path.exists() else None


def write_facts(folder: Path, facts: EngineFacts) -> None:
    (folder / _FACTS).write_text(facts.model_dump_json())


def read_facts(folder: Path) -> EngineFacts:
    return EngineFacts.model_validate_json((folder / _FACTS).read_text())
