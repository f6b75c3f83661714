"""The table that decode steps follow, inside a scheduler process.

A table travels through SGLang's `set_internal_state`, which rank 0 broadcasts to every tensor-parallel rank in the
same loop iteration. Its payload may hold only numbers, so a table is spelt out as keys; see `encode` and `decode`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from cluster.messages.directive import DepthTable
from cluster.messages.profile import StepTimes
from workers.sglang_patch.graph_sizes import worth_preparing

_PREFIX = "specfleet."
_REVISION = _PREFIX + "revision"
_ENABLED = _PREFIX + "enabled"
_DEPTH = _PREFIX + "depth."


def encode(table: DepthTable, revision: int) -> dict[str, int | float]:
    """Spell a table out as the numbers that `set_internal_state` carries."""
    depths = {f"{_DEPTH}{batch}": depth for batch, depth in table.depth_by_batch.items()}
    return {_REVISION: revision, _ENABLED: int(table.enabled), **depths}


def decode(state: Mapping[str, int | float]) -> tuple[DepthTable, int] | None:
    """Read a table and its revision back; None if `state` carries none."""
    if _REVISION not in state:
        return None
    depths = {int(key.removeprefix(_DEPTH)): int(value) for key, value in state.items() if key.startswith(_DEPTH)}
    return DepthTable(enabled=bool(state[_ENABLED]), depth_by_batch=depths), int(state[_REVISION])


class DepthLookup:
    """Looks the depth of each decode step up in the table in force: SGLang's `AdaptiveSpecPolicy`.

    The answer depends on the table and the batch size alone, so that every tensor-parallel rank gives the same one.
    """

    def __init__(self, candidates: list[int], table: DepthTable) -> None:
        self.candidate_steps = sorted(candidates)
        self.table = table
        self.revision = 0
        self.graph_sizes: list[int] = []
        """Batch sizes of CUDA graphs, ascending; empty where there are none."""
        self.graph_sizes_of: dict[int, tuple[int, ...]] = {}
        """Those of each depth: the smallest ones, up to the last at which the depth could pay."""
        self.held_off = False
        """While true, depth 0 whatever the table says."""

    def prepare_for(self, sizes: list[int], known: StepTimes | None) -> None:
        """Say which CUDA graphs there will be; `known` step times tell at which batch sizes a depth could never pay."""
        self.graph_sizes = sorted(sizes)
        if known is None or not sizes:
            self.graph_sizes_of = {depth: tuple(self.graph_sizes) for depth in self.candidate_steps}
        else:
            self.graph_sizes_of = worth_preparing(known, self.candidate_steps, self.graph_sizes)

    def put(self, table: DepthTable, revision: int) -> None:
        """Put a table in force, from the next decode step on.

        Raises:
            ValueError: if it holds a depth that this engine built no state for.
        """
        unknown = set(table.depth_by_batch.values()) - set(self.candidate_steps)
        if unknown:
            raise ValueError(f"depth_by_batch holds {sorted(unknown)}, not among the candidate depths {self.candidate_steps}")
        self.table, self.revision = table, revision

    def padded(self, batch_size: int) -> int:
        """Batch size that a step pays for: the CUDA graph's, or its own where there is no graph that holds it."""
        index = bisect_left(self.graph_sizes, batch_size)
        return self.graph_sizes[index] if index < len(self.graph_sizes) else batch_size

    # -- AdaptiveSpecPolicy --

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        """SGLang hands over an argument that is None where it chose the sizes itself; `prepare_for` has the true ones."""

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        """None: SGLang would set an argument by it that the capture does not read. The worker prunes."""
        return None

    def get_steps_for_batch(self, batch_size: int) -> int:
        """The table's depth, or the next lower one that has a graph where that one was not worth a graph."""
        if self.held_off:
            return 0
        padded = self.padded(batch_size)
        told = self.table.depth(padded)
        if padded not in self.graph_sizes:
            return told
        return max((k for k in self.candidate_steps if k <= told and padded in self.graph_sizes_of[k]), default=0)

    def on_verify_complete(self, num_correct_drafts_per_req: list[int], batch_size: int) -> None:
        """A table changes only through a directive, never by what a rank has seen."""
