"""SGLang's EAGLE worker, with the depth of every decode step taken from a directive and every step counted.

Imported only inside a scheduler process: its imports initialise CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.runtime_context import get_parallel
from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.adaptive_runtime_state import AdaptiveController, SpecRuntimeState
from sglang.srt.speculative.eagle_info import EagleVerifyInput
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from cluster.messages.directive import DepthTable
from cluster.messages.hello import EngineFacts
from workers.sglang_patch import cuda_graphs, start_progress, verification
from workers.sglang_patch.depth_lookup import DepthLookup
from workers.sglang_patch.draft_worker import DeferringDraftWorker
from workers.sglang_patch.environment import COUNTERS_ENV
from workers.sglang_patch.one_node import OneNodeInputs
from workers.sglang_patch.penalties import Penalties
from workers.sglang_patch.start_files import read_step_times, write_facts
from workers.sglang_patch.step_recorder import StepRecorder
from workers.shared_counters import SharedCounters

# `EAGLEWorkerV2` makes its draft worker by this name.
eagle_worker_v2.EagleDraftWorker = DeferringDraftWorker


class DirectedEagleWorker(EAGLEWorkerV2):
    """`EAGLEWorkerV2` whose depth follows a `DepthTable`."""

    adaptive_controller: AdaptiveController | None
    _draft_worker: DeferringDraftWorker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        start_progress.note("loading the draft model")
        super().__init__(*args, **kwargs)
        if self.adaptive_controller is None:
            raise RuntimeError(
                "SGLang turned speculative_adaptive off for these server_args; its log says why. specfleet needs it"
            )
        depths = self.adaptive_controller.candidate_steps
        self.lookup = DepthLookup(depths, DepthTable(depth_by_batch={1: self.speculative_num_steps}))
        self.adaptive_controller = AdaptiveController(self, self.lookup)
        self._state_gib: dict[int, float] = {}
        self._one_node = OneNodeInputs(self.device)
        self._penalties = Penalties(self.target_worker.model_config.vocab_size, self.device)
        verification.use(self._penalties)

    def init_attention_backends(self) -> None:
        super().init_attention_backends()
        start_progress.note(f"capturing graphs: depth {self.speculative_num_steps}, 1 of {len(self.lookup.candidate_steps)}")

    def init_cuda_graphs(self) -> None:
        """Build the state of every candidate depth. Then the batch sizes are known, and counting can start."""
        folder = Path(os.environ[COUNTERS_ENV])
        self.lookup.prepare_for(cuda_graphs.sizes(self._target_worker.model_runner), read_step_times(folder))
        before = cuda_graphs.free_gib(self.device, self.gpu_id)
        with cuda_graphs.captured_for(self.lookup.graph_sizes_of[self.speculative_num_steps]):
            super().init_cuda_graphs()
        taken = before - cuda_graphs.free_gib(self.device, self.gpu_id)
        # What is left over belongs to the first depth, whose state SGLang builds with everything else.
        self._state_gib[self.speculative_num_steps] = taken - sum(self._state_gib.values())
        rank = get_parallel().tp_rank
        if rank == 0:
            write_facts(folder, self._facts())
        sizes = self.lookup.graph_sizes or _ungraphed_sizes(self.req_to_token_pool.size)
        counters = SharedCounters.create(folder / f"rank{rank}", self.lookup.candidate_steps, sizes)
        self.recorder = StepRecorder(counters, self.lookup.padded, self._draft_worker.work)

    def build_adaptive_runtime_state(self, speculative_num_steps: int, *args: Any, **kwargs: Any) -> SpecRuntimeState:
        number, depths = len(self._state_gib) + 2, len(self.lookup.candidate_steps)
        start_progress.note(f"capturing graphs: depth {speculative_num_steps}, {number} of {depths}")
        before = cuda_graphs.free_gib(self.device, self.gpu_id)
        with cuda_graphs.captured_for(self.lookup.graph_sizes_of[speculative_num_steps]):
            state = super().build_adaptive_runtime_state(speculative_num_steps, *args, **kwargs)
        self._state_gib[speculative_num_steps] = before - cuda_graphs.free_gib(self.device, self.gpu_id)
        return state

    def _facts(self) -> EngineFacts:
        why_whole = self._draft_worker.why_whole
        return EngineFacts(
            off=f"whole draft-extend: {why_whole}" if why_whole else "K and V alone, put off",
            graph_sizes=self.lookup.graph_sizes_of,
            state_gib={depth: round(max(0.0, gib), 3) for depth, gib in sorted(self._state_gib.items())},
        )

    def put_table(self, table: DepthTable, revision: int) -> None:
        """Put a table in force, from the next decode step on.

        Raises:
            ValueError: if it holds a depth that is no candidate.
        """
        self.lookup.put(table, revision)
        self.recorder.table_in_force(revision)

    @property
    def last_shared_read_runner(self) -> Any:
        """The runner whose reads of shared buffers the scheduler waits for: the draft's, or the target's if the draft's work was
        deferred."""
        return self._target_worker.model_runner if self._draft_worker.has_deferred else self._draft_worker.draft_runner

    def forward_batch_generation(self, batch: ScheduleBatch, *args: Any, **kwargs: Any) -> GenerationBatchResult:
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            self.recorder.prefill_launched()
            self._draft_worker.has_deferred = False
            return self._prefill(batch, *args, **kwargs)
        step = self.lookup.begin_step(len(batch.reqs), self._draft_worker.any_cold(batch.reqs))
        self._draft_worker.may_defer = step.may_defer
        return super().forward_batch_generation(batch, *args, **kwargs)

    def _prefill(self, batch: ScheduleBatch, *args: Any, **kwargs: Any) -> GenerationBatchResult:
        self._penalties.start(batch.reqs)
        if (penalties := self._penalties.of_prefill(batch.reqs)) is not None:
            batch.sampling_info.acc_additive_penalties, batch.sampling_info.acc_scaling_penalties = penalties
        result = super().forward_batch_generation(batch, *args, **kwargs)
        self._penalties.count(batch.reqs, result.next_token_ids[:, None])
        return result

    def _build_trivial_verify_input(self, batch: ScheduleBatch) -> EagleVerifyInput:
        ours = self._one_node.build(batch, self._target_worker.model_runner.attn_backend)
        return ours or super()._build_trivial_verify_input(batch)

    def activate_step_by_batch(self, batch_size: int) -> None:
        super().activate_step_by_batch(batch_size)
        self.recorder.step_launched(self.speculative_num_steps, batch_size)

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: Sequence[int], batch_size: int = 0) -> None:
        self.recorder.step_verified(num_correct_drafts_per_req)


def _ungraphed_sizes(most: int) -> list[int]:
    """Sizes that steps without a CUDA graph are grouped by, up to `most` requests: each up to 16, then in steps of 8."""
    return [size for size in (*range(1, 17), *range(24, 1025, 8)) if size < most + 8]
