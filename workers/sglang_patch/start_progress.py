"""How far an engine has come with its start, or why it failed: noted by any of its processes, read by its actor."""

from __future__ import annotations

import os
from pathlib import Path

from workers.sglang_patch.environment import COUNTERS_ENV

_PROGRESS, _FAILURE = "progress", "failure"


def note(text: str) -> None:
    """Note what this process is about to do. All ranks note the same."""
    Path(os.environ[COUNTERS_ENV], _PROGRESS).write_text(text)


def noted() -> str:
    """What was noted last."""
    try:
        return Path(os.environ[COUNTERS_ENV], _PROGRESS).read_text()
    except (KeyError, FileNotFoundError):
        return "starting"


def note_failure(error: Exception) -> None:
    """Note why this process cannot start."""
    Path(os.environ[COUNTERS_ENV], _FAILURE).write_text(f"{type(error).__name__}: {error}")


def failure() -> str:
    """Why a process could not start; empty if none said so."""
    path = Path(os.environ[COUNTERS_ENV], _FAILURE)
    return path.read_text() if path.exists() else ""
