"""What an engine runs on, in words."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache


@cache
def hardware(device: str) -> str:
    """The first GPU's name and driver, or the CPU's; for `device` as SGLang names it."""
    if device == "cpu":
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
