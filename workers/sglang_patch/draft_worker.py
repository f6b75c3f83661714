"""SGLang's draft worker, which at depth 0 keeps the draft's KV cache complete at little cost.

Imported only inside a scheduler process: its imports initialise CUDA.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.eagle_utils import get_draft_recurrent_hidden_state_spec
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

from workers.sglang_patch import draft_kv
from workers.sglang_patch.draft_kv import DeferredDraftKV
from workers.sglang_patch.draft_modes import WHOLE_EXTEND_ENV
from workers.sglang_patch.step_recorder import DraftCounts


class DeferringDraftWorker(EagleDraftWorker):
    """`EagleDraftWorker` that can defer what a step at depth 0 has to write to the draft's KV cache.

    Drafting starts from the draft's output at a request's last position. A request whose last step was deferred has no such
    output: it is *cold* until a step runs the whole draft-extend for it. `DepthLookup` asks for such a step.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.work = DraftCounts()
        self.may_defer = False
        """Whether the draft's work of the present step may wait."""
        self.has_deferred = False
        """Whether that of the last step was deferred."""
        self.why_whole: str | None = None
        """Why steps at depth 0 run the whole draft-extend; None if they do not."""
        self._deferred: DeferredDraftKV | None = None
        self._cold: list[Any] = []

    def alloc_memory_pool(self, *args: Any, **kwargs: Any) -> None:
        super().alloc_memory_pool(*args, **kwargs)
        forced = f"{WHOLE_EXTEND_ENV} is set" if os.environ.get(WHOLE_EXTEND_ENV) == "1" else None
        self.why_whole = forced or draft_kv.why_not(self.draft_runner)
        if self.why_whole is None:
            self._deferred = DeferredDraftKV(self.draft_runner, self.req_to_token_pool.size)

    def any_cold(self, requests: list[Any]) -> bool:
        """Whether some of these requests have nothing to draft from."""
        if not self._cold:
            return False
        return requests == self._cold or not {id(request) for request in self._cold}.isdisjoint(map(id, requests))

    def draft(self, batch: ScheduleBatch, **kwargs: Any) -> Any:
        self._write_deferred()
        self.work.passes += self.speculative_num_steps - 1
        return super().draft(batch, **kwargs)

    def _draft_extend_for_prefill(self, *args: Any, **kwargs: Any) -> Any:
        self._write_deferred()
        return super()._draft_extend_for_prefill(*args, **kwargs)

    def _draft_extend_for_decode(self, batch: ScheduleBatch, result: GenerationBatchResult, **kwargs: Any) -> None:
        self.has_deferred = self.may_defer and self._deferred is not None
        if self.has_deferred:
            self._defer(batch, result)
            return
        self._write_deferred()
        self._cold = []
        self.work.passes += 1
        super()._draft_extend_for_decode(batch, result, **kwargs)

    def _defer(self, batch: ScheduleBatch, result: GenerationBatchResult) -> None:
        assert self._deferred is not None
        # A request that left may have given its slots to another one, and two writes to one slot have no order.
        if batch.reqs != self._cold or self._deferred.room < len(batch.reqs):
            self._write_deferred()
            self._cold = list(batch.reqs)
        hidden = result.logits_output.hidden_states
        self._deferred.add(hidden, result.next_token_ids, batch.seq_lens, batch.out_cache_loc)
        self.work.deferred += len(batch.reqs)
        if not batch.enable_overlap:
            self._fill_in(result, len(batch.reqs))

    def _write_deferred(self) -> None:
        if self._deferred is not None and self._deferred.count:
            self.work.writes += 1
            self._deferred.write()

    def _fill_in(self, result: GenerationBatchResult, requests: int) -> None:
        """Give the next step tensors that it does not read: without overlap scheduling SGLang still filters and joins them."""
        width, dtype = get_draft_recurrent_hidden_state_spec(self.draft_runner)
        draft = result.next_draft_input
        draft.topk_p = torch.zeros((requests, self.topk), dtype=torch.float32, device=self.device)
        draft.topk_index = torch.zeros((requests, self.topk), dtype=torch.int64, device=self.device)
        draft.hidden_states = torch.zeros((requests, width), dtype=dtype, device=self.device)
