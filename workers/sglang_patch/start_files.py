"""What passes between the actor and rank 0's scheduler process at the start, as files beside the counters."""

from __future__ import annotations

from pathlib import Path

from cluster.messages.hello import EngineFacts
from cluster.messages.profile import StepTimes


def put_known(folder: Path, known: StepTimes | None) -> None:
    """Leave the step times known so far for the schedulers."""
    if known is not None:
        (folder / "known.json").write_text(known.model_dump_json(include={"step_ms"}))


def get_known(folder: Path) -> StepTimes | None:
    path = folder / "known.json"
    return StepTimes.model_validate_json(path.read_text()) if path.exists() else None


def put_facts(folder: Path, facts: EngineFacts) -> None:
    (folder / "facts.json").write_text(facts.model_dump_json())


def get_facts(folder: Path) -> EngineFacts:
    return EngineFacts.model_validate_json((folder / "facts.json").read_text())
