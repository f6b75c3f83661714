"""At which batch sizes each engine runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster.policy.arrays import Floats
from cluster.policy.batch_buckets import BatchBuckets
from cluster.policy.engine_rows import EngineRows
from cluster.policy.report_delta import StepDelta

HALF_LIFE_S = 5.0
"""Time in which older steps lose half their weight in `BatchHistory.shares`, in seconds."""
BUSY_S = 5.0
"""How long an engine counts as busy after it reported steps, in seconds."""


class BatchHistory:
    """How the steps of a cohort's engines spread over the batch buckets."""

    def __init__(self, buckets: BatchBuckets) -> None:
        self._buckets = buckets
        size = (len(buckets),)
        dtype = np.dtype([("shares", np.float64, size), ("latest", np.float64, size), ("ran_at", np.float64)])
        self._engines = EngineRows(np.array((0.0, 0.0, -np.inf), dtype))

    def observe(self, now: float, new: StepDelta) -> None:
        """Add the steps of one tick; `now` is in seconds."""
        if not new.owner:
            return
        rows = self._engines.find(new.engines)
        shape = (len(rows), len(self._buckets))
        cells = np.array(new.owner) * shape[1] + self._buckets.find_all(new.batch)
        ran = np.bincount(cells, new.steps, shape[0] * shape[1]).reshape(shape)
        moved = ran.any(axis=1)
        rows, ran = rows[moved], ran[moved]
        shares, latest, ran_at = self._engines["shares"], self._engines["latest"], self._engines["ran_at"]
        latest[rows] = ran / ran.sum(axis=1, keepdims=True)
        shares[rows] *= 0.5 ** ((now - ran_at[rows]) / HALF_LIFE_S)[:, None]
        shares[rows] += latest[rows]
        ran_at[rows] = now

    def shares(self, engines: Sequence[str]) -> Floats:
        """Share of each engine's recent steps in each bucket, by (engine, bucket). All zero before its first step."""
        weights = self._engines.values("shares", engines)
        result: Floats = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
        return result

    def latest(self, engines: Sequence[str]) -> Floats:
        """The same for the steps that each engine reported last."""
        return self._engines.values("latest", engines)

    def busy(self, now: float, engines: Sequence[str]) -> list[str]:
        """Those of the engines that ran steps lately."""
        ran_at = self._engines.values("ran_at", engines).tolist()
        return [name for name, at in zip(engines, ran_at, strict=True) if now - at <= BUSY_S]

    def forget(self, engine: str) -> None:
        """Drop an engine that is gone."""
        self._engines.forget(engine)
