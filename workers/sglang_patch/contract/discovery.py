"""Whether SGLang will find and load the plugin: it only logs one that it cannot load."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

GROUP, NAME = "sglang.srt.plugins", "specfleet"
OURS = "workers.sglang_patch.plugin:register"


def require_plugin() -> None:
    """Check that SGLang's processes will load the plugin of this version.

    Raises:
        RuntimeError: if they would load none, or another version's.
    """
    allowed = os.environ.get("SGLANG_PLUGINS")
    if allowed and NAME not in [name.strip() for name in allowed.split(",")]:
        raise RuntimeError(f"SGLANG_PLUGINS leaves the plugin `{NAME}` out: it is {allowed!r}; add `{NAME}` to it")
    found = [entry.value for entry in entry_points(group=GROUP) if entry.name == NAME]
    if found != [OURS]:
        raise RuntimeError(
            f"SGLang would load {found or 'nothing'} as its plugin `{NAME}`, not {OURS}: install specfleet anew in the Python "
            "environment of the engine, and remove an old specfleet.egg-info from the Python path"
        )
