"""SGLang's draft worker, which at depth 0 keeps the draft's KV cache complete at little cost.

Imported only inside a scheduler process: its imports initialise CUDA.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.speculative.eagle_utils import get_draft_recurrent_hidden_state_spec
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

from workers.sglang_patch import draft_kv
from workers.sglang_patch.draft_kv import DeferredDraftKV
from workers.sglang_patch.draft_modes import WHOLE_EXTEND_ENV
from workers.sglang_patch.step_recorder import DraftCounts


class DeferringDraftWorker(EagleDraftWorker):
    """`EagleDraftWorker` that can set aside what a step at depth 0 owes to the draft's KV cache.

    A request whose last step was set aside has nothing to draft from, for that takes the draft's output at its last
    position. Such a request is *cold* until a step runs the whole draft-extend for it; `DirectedEagleWorker` sees to that.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.work = DraftCounts()
        self.may_set_aside = False
        """Whether the draft's work of the present step may wait."""
        self.has_set_aside = False
        """Whether that of the last step does."""
        self.why_whole: str | None = None
        """Why steps at depth 0 run the whole draft-extend; None if they do not."""
        self._kept: DeferredDraftKV | None = None
        self._cold: list[Any] = []

    def alloc_memory_pool(self, *args: Any, **kwargs: Any) -> None:
        super().alloc_memory_pool(*args, **kwargs)
        forced = f"{WHOLE_EXTEND_ENV} is set" if os.environ.get(WHOLE_EXTEND_ENV) == "1" else None
        self.why_whole = forced or draft_kv.why_not(self.draft_runner)
        if self.why_whole is None:
            self._kept = DeferredDraftKV(self.draft_runner, self.req_to_token_pool.size)

    def any_cold(self, requests: list[Any]) -> bool:
        return not {id(request) for request in self._cold}.isdisjoint(map(id, requests))

    def draft(self, batch: ScheduleBatch, **kwargs: Any) -> Any:
        self._write_kept()
        self.work.passes += self.speculative_num_steps - 1
        return super().draft(batch, **kwargs)

    def _draft_extend_for_prefill(self, *args: Any, **kwargs: Any) -> Any:
        self._write_kept()
        return super()._draft_extend_for_prefill(*args, **kwargs)

    def _draft_extend_for_decode(self, batch: ScheduleBatch, result: GenerationBatchResult, **kwargs: Any) -> None:
        self.has_set_aside = self.may_set_aside and self._kept is not None
        if self.has_set_aside:
            self._set_aside(batch, result)
            return
        self._write_kept()
        self._cold = []
        self.work.passes += 1
        super()._draft_extend_for_decode(batch, result, **kwargs)

    def _set_aside(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        assert self._kept is not None
        # A request that left may have given its slots to another one, and two writes to one slot have no order.
        if batch.reqs != self._cold or self._kept.room < len(batch.reqs):
            self._write_kept()
            self._cold = list(batch.reqs)
        hidden = result.logits_output.hidden_states
        self._kept.add(hidden, result.next_token_ids, batch.seq_lens, batch.out_cache_loc)
        self.work.set_aside += len(batch.reqs)
        if not batch.enable_overlap:
            self._fill_in(result, len(batch.reqs))

    def _write_kept(self) -> None:
        if self._kept is not None and self._kept.count:
            self.work.writes += 1
            self._kept.write()

    def _fill_in(self, result: GenerationBatchResult, requests: int) -> None:
        """Without overlap SGLang filters and joins what a step hands to the next, so there must be tensors, read by none."""
        width, dtype = get_draft_recurrent_hidden_state_spec(self.draft_runner)
        draft = result.next_draft_input
        draft.topk_p = torch.zeros((requests, self.topk), dtype=torch.float32, device=self.device)
        draft.topk_index = torch.zeros((requests, self.topk), dtype=torch.int64, device=self.device)
        draft.hidden_states = torch.zeros((requests, width), dtype=dtype, device=self.device)
