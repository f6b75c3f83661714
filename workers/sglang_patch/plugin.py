"""SGLang's plugin entry point: puts the patch into the processes of specfleet's own engines.

SGLang only logs a plugin that fails, so nothing here is proof: see `workers.sglang_patch.contract.proof`.
"""

from __future__ import annotations

import os
import pkgutil

from workers.sglang_patch.contract.row import HOOK
from workers.sglang_patch.contract.table import ROWS
from workers.sglang_patch.environment import COUNTERS_ENV, device


def register() -> None:
    """Register the contract's hooks for this device with SGLang, which applies them next."""
    if COUNTERS_ENV not in os.environ:
        return
    if device() == "cpu":
        from workers.sglang_patch.cpu import patch

        patch.apply()
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for row in ROWS:
        if row.kind is HOOK and device() in row.devices:
            HookRegistry.register(row.path, pkgutil.resolve_name(row.ours), HookType.AROUND)
