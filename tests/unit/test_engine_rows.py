"""Rows of engines that come and go."""

from __future__ import annotations

import numpy as np

from cluster.policy.engine_rows import EngineRows


def test_rows_follow_their_engines() -> None:
    engines = EngineRows(np.array((7.0,), [("value", np.float64)]))
    engines["value"][engines.find([])] = 0.0
    rows = engines.find(["a", "b", "c"])
    engines["value"][rows] = [1.0, 2.0, 3.0]
    engines.forget("a")
    engines.forget("never seen")
    assert "a" not in engines
    assert engines.values("value", ["c", "new", "b", "a"]).tolist() == [3.0, 7.0, 2.0, 7.0]
