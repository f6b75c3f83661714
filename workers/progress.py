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
    """What was noted last."""
    try:
        return Path(os.environ[COUNTERS_ENV], _FILE).read_text()
    except (KeyError, FileNotFoundError):
        return "starting"
