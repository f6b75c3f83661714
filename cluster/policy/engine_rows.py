"""A numpy array with one row for each engine, found by the engine's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.policy.arrays import Indices


class EngineRows:
    """A structured array that grows by a blank row for each new engine."""

    def __init__(self, blank: NDArray[np.void]) -> None:
        """`blank` is the row of a new engine: a structured array without axes."""
        self._row: dict[str, int] = {}
        self._blank = blank
        self._rows = np.empty(0, blank.dtype)

    def __contains__(self, engine: str) -> bool:
        return engine in self._row

    def __getitem__(self, field: str) -> NDArray[Any]:
        """A view of one field; its first axis is the row. It holds until an engine comes or goes."""
        return self._rows[field]

    def find(self, engines: Iterable[str]) -> Indices:
        """The rows of these engines, in their order. New engines get a blank one."""
        rows = np.array([self._row.setdefault(engine, len(self._row)) for engine in engines], dtype=np.int64)
        if new := len(self._row) - len(self._rows):
            self._rows = np.concatenate([self._rows, np.repeat(self._blank, new)])
        return rows

    def values(self, field: str, engines: Iterable[str]) -> NDArray[Any]:
        """One field of these engines, in their order (a copy)."""
        rows = self.find(engines)  # first, because it may replace the array
        return self._rows[field][rows]

    def forget(self, engine: str) -> None:
        """Drop an engine's row, if it has one."""
        row = self._row.pop(engine, None)
        if row is not None:
            self._rows = np.delete(self._rows, row)
            self._row = {name: r - (r > row) for name, r in self._row.items()}
