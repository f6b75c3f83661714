"""What a step at depth 0 verifies: trees of one node. Imported only inside a scheduler process."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.eagle_info import EagleVerifyInput


class OneNodeInputs:
    """Makes the input of a step at depth 0 without launching a kernel.

    All of it except tokens and positions is the same at every step. SGLang fills five tensors again each time, between two
    steps, when the GPU has nothing else to run.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._indices = torch.empty((0, 1), dtype=torch.int64, device=device)
        self._nothing = self._indices
        self._mask = torch.empty(0, dtype=torch.bool, device=device)

    def build(self, batch: ScheduleBatch, attention: Any) -> EagleVerifyInput | None:
        """Build the input. None for an idle batch, or if attention reads a mask of its own: SGLang fills that."""
        requests, mask = batch.seq_lens.shape[0], attention.verify_mask
        if batch.forward_mode.is_idle() or (mask is not None and (mask.is_read or not mask.fits(requests))):
            return None
        self._grow(requests, 0 if mask is not None else requests * (attention.max_context_len + 1))
        return EagleVerifyInput(
            draft_token=batch.spec_info.bonus_tokens,
            custom_mask=self._mask if mask is None else mask.buffer,
            positions=batch.seq_lens.to(torch.int64),
            retrieve_index=self._indices[:requests],
            retrieve_next_token=self._nothing[:requests],
            retrieve_next_sibling=self._nothing[:requests],
            retrieve_cum_len=None,
            spec_steps=0,
            topk=1,
            draft_token_num=1,
            capture_hidden_mode=CaptureHiddenMode.FULL,
            seq_lens_sum=None,
            seq_lens_cpu=None,
        )

    def _grow(self, requests: int, visible: int) -> None:
        if len(self._indices) < requests:
            self._indices = torch.arange(requests, dtype=torch.int64, device=self._device).unsqueeze(1)
            self._nothing = torch.full((requests, 1), -1, dtype=torch.int64, device=self._device)
        if len(self._mask) < visible:
            # A node sees all positions before it and itself.
            self._mask = torch.ones(visible, dtype=torch.bool, device=self._device)
