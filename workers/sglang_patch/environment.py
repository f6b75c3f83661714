"""Environment variables that tell an engine's processes what they are."""

from __future__ import annotations

import os
from typing import Literal

COUNTERS_ENV = "SPECFLEET_COUNTERS"
"""Folder in shared memory where each rank keeps its counters. Only `EngineActor` sets it, so any other SGLang process in the
same Python environment stays as it is."""

CPU_ENV = "SGLANG_USE_CPU_ENGINE"
"""SGLang's own. Set to 1: this process runs on the CPU."""


def device() -> Literal["cpu", "cuda"]:
    """The kind of device that this process runs on."""
    return "cpu" if os.environ.get(CPU_ENV) == "1" else "cuda"
