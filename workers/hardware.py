"""The hardware that an engine runs on, for people."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache


@cache
def hardware(device: str) -> str:
    """Name and driver of the first GPU, or name and cores of the CPU. `device` is SGLang's: cuda or cpu."""
    if device == "cpu":
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
