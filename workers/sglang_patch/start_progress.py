"""How far an engine has come with its start: noted by its processes, told by its actor."""

from __future__ import annotations

import os
from pathlib import Path

from workers.sglang_patch.environment import COUNTERS_ENV

_FILE, _FAILURE = "progress", "failure"


def note(text: str) -> None:
    """Note what this process is about to do, from the actor or from a scheduler. All ranks note the same."""
    Path(os.environ[COUNTERS_ENV], _FILE).write_text(text)


def fail(error: Exception) -> None:
    """Note why this process, a scheduler, cannot start."""
    Path(os.environ[COUNTERS_ENV], _FAILURE).write_text(f"{type(error).__name__}: {error}")


def failure() -> str:
    """Why a scheduler could not start; empty if none said so."""
    path = Path(os.environ[COUNTERS_ENV], _FAILURE)
    return path.read_text() if path.exists() else ""


def read() -> str:
    """What was noted last."""
    try:
        return Path(os.environ[COUNTERS_ENV], _FILE).read_text()
    except (KeyError, FileNotFoundError):
        return "starting"
