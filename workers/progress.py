"""How far an engine has come with its start: noted by its processes, told by its actor."""

from __future__ import annotations

import os
from pathlib import Path

from workers.plugin import COUNTERS_ENV

_FILE = "progress"


def note(text: str) -> None:
    """Note what this process is about to do, from the actor or from a scheduler. All ranks note the same."""
    Path(os.environ[COUNTERS_ENV], _FILE).write_text(text)


def read() -> str:
    """What was noted last. The notes go when all processes are up; what is left is to prove the patch."""
    if COUNTERS_ENV not in os.environ:
        return "starting"
    try:
        return Path(os.environ[COUNTERS_ENV], _FILE).read_text()
    except FileNotFoundError:
        return "proving that the patch is in force"
