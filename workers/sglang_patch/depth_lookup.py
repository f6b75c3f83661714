"""The depth of each decode step, looked up inside a scheduler process."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from cluster.messages.directive import DepthTable
from cluster.messages.profile import StepTimes
from workers.sglang_patch.graph_sizes import worth_preparing


@dataclass(frozen=True)
class StepDepth:
    """What is decided for one decode step."""

    depth: int
    may_defer: bool
    """Whether the draft's work of this step may wait: the table says depth 0, so the next step need not draft."""


class DepthLookup:
    """Looks up the depth of each decode step, once: SGLang's `AdaptiveSpecPolicy`.

    A step's depth depends on three things: the table in force, the batch's size, and whether some request of the batch is
    cold (its draft's work was deferred, so there is nothing to draft from). All tensor-parallel ranks see the same three at
    the same step, so they decide the same. Clocks and measured acceptance play no part.
    """

    def __init__(self, candidates: list[int], table: DepthTable) -> None:
        self.candidate_steps = sorted(candidates)
        self.table = table
        self.revision = 0
        self.graph_sizes: list[int] = []
        """Batch sizes of CUDA graphs, ascending; empty where there are none."""
        self.graph_sizes_of: dict[int, tuple[int, ...]] = {}
        """Those of each depth: the smallest ones, up to the last at which the depth could pay."""
        self._step = StepDepth(0, may_defer=False)

    def prepare_for(self, sizes: list[int], known: StepTimes | None) -> None:
        """Set which CUDA graphs there will be; `known` step times tell at which batch sizes a depth could never pay."""
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
        """Batch size that a step costs: that of the CUDA graph, or its own where no graph holds it."""
        index = bisect_left(self.graph_sizes, batch_size)
        return self.graph_sizes[index] if index < len(self.graph_sizes) else batch_size

    def begin_step(self, batch_size: int, any_cold: bool) -> StepDepth:
        """Decide the depth of the coming decode step.

        If the table wants drafts for a batch with a cold request, the step runs at depth 0 with the draft's whole work, and
        the next step drafts from that.
        """
        told = self._from_table(batch_size)
        self._step = StepDepth(0 if any_cold else told, may_defer=told == 0)
        return self._step

    def _from_table(self, batch_size: int) -> int:
        """The table's depth, or the next lower one that has a graph where that one has none."""
        padded = self.padded(batch_size)
        told = self.table.depth(padded)
        if padded not in self.graph_sizes:
            return told
        return max((k for k in self.candidate_steps if k <= told and padded in self.graph_sizes_of[k]), default=0)

    # -- AdaptiveSpecPolicy --

    def get_steps_for_batch(self, batch_size: int) -> int:
        """The depth decided by `begin_step`, for the same batch."""
        return self._step.depth

    def set_cuda_graph_bs(self, cuda_graph_bs: list[int] | None) -> None:
        """Ignored: SGLang passes an argument that is None where it chose the sizes itself. `prepare_for` gets the true ones."""

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        """None: SGLang would set an argument that the capture does not read. The worker prunes instead."""
        return None

    def on_verify_complete(self, num_correct_drafts_per_req: list[int], batch_size: int) -> None:
        """Do nothing: a table changes only through a directive, never by what a rank has seen."""
