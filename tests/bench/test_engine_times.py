"""How long an engine measures its step times before it serves."""

from __future__ import annotations

import time
from pathlib import Path

from tests.worker.bench import bench
from workers import startup_profile


def test_measuring_step_times_keeps_to_its_time(tmp_path: Path) -> None:
    with bench({"XDG_CACHE_HOME": str(tmp_path)}, profile="startup") as b:
        began = time.monotonic()
        b.run(b.engine.profile())
        took = time.monotonic() - began
    print(f"\nmeasured in {took:.1f} s")
    assert took < startup_profile.WITHIN_S + 5
