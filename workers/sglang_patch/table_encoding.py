"""A depth table as the numbers that SGLang's `set_internal_state` carries.

Rank 0 broadcasts such a request to every tensor-parallel rank in the same loop iteration, so all ranks change tables at the
same step. Its payload may hold only numbers, so each entry of a table gets a key of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.messages.directive import DepthTable

_PREFIX = "specfleet."
_REVISION = _PREFIX + "revision"
_ENABLED = _PREFIX + "enabled"
_DEPTH = _PREFIX + "depth."


def encode(table: DepthTable, revision: int) -> dict[str, int | float]:
    """Encode a table and its revision."""
    depths = {f"{_DEPTH}{batch}": depth for batch, depth in table.depth_by_batch.items()}
    return {_REVISION: revision, _ENABLED: int(table.enabled), **depths}


def decode(state: Mapping[str, int | float]) -> tuple[DepthTable, int] | None:
    """Decode a table and its revision; None if `state` carries none."""
    if _REVISION not in state:
        return None
    depths = {int(key.removeprefix(_DEPTH)): int(value) for key, value in state.items() if key.startswith(_DEPTH)}
    return DepthTable(enabled=bool(state[_ENABLED]), depth_by_batch=depths), int(state[_REVISION])
