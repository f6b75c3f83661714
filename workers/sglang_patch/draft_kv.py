"""K and V of a one-layer EAGLE-3 draft, written late and without running the draft.

The K and V that the draft stores for a position depend on two things: the embedding of the token that follows, and the target's
hidden states at that position. Attention, MLP and LM head only matter for what is drafted next. So a step at depth 0 copies
these inputs and defers the rest. K and V of many steps are computed at once, just before something could read or overwrite
their slots; the weights are then read once for many steps.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3

CAPACITY = 2048
"""Most positions deferred. Each takes three of the target's hidden states: 48 MB of bfloat16 for Llama 3.1 8B."""


def why_not(runner: Any) -> str | None:
    """Why this draft's K and V cannot be written alone; None if they can."""
    model, pool = runner.model, runner.token_to_kv_pool
    if type(model) is not LlamaForCausalLMEagle3:
        return f"the draft is a {type(model).__name__}, not a LlamaForCausalLMEagle3"
    if len(model.model.layers) != 1:
        return f"the draft has {len(model.model.layers)} layers, not one"
    if model.model.is_mrope_enabled:
        return "the draft has multimodal rotary embeddings"
    if not isinstance(pool, MHATokenToKVPool) or runner.kv_index_translator.is_translating:
        return f"the slots of the draft's KV cache, a {type(pool).__name__}, cannot be written directly"
    if pool.dtype != runner.model_config.dtype:
        return f"the draft's KV cache holds {pool.dtype}, not the model's {runner.model_config.dtype}"
    if runner.server_args.enable_hierarchical_cache or runner.server_args.disaggregation_mode != "null":
        return "the KV cache is copied elsewhere (hierarchical cache or disaggregation), which could happen too early"
    return None


class DeferredDraftKV:
    """Inputs of positions whose K and V are still to be written."""

    def __init__(self, runner: Any, most_requests: int) -> None:
        """`runner` is the draft's `ModelRunner`; no step has more than `most_requests` requests."""
        self._runner = runner
        config, device = runner.model_config, runner.device
        capacity = max(CAPACITY, most_requests)
        width = runner.model.model.hidden_size_in * runner.model.model.num_aux_hidden_states
        self._hidden = torch.empty((capacity, width), dtype=config.dtype, device=device)
        self._tokens = torch.empty(capacity, dtype=torch.int64, device=device)
        self._positions = torch.empty_like(self._tokens)
        self._slots = torch.empty_like(self._tokens)
        self.count = 0
        """Positions deferred."""

    @property
    def room(self) -> int:
        """Positions that can still be deferred before a write."""
        return len(self._tokens) - self.count

    def add(self, hidden: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        """Defer n positions: hidden [n, 3 * target hidden size]; the tokens that follow, positions and KV cache slots, each [n].

        All slots since the last write must differ.
        """
        begin, self.count = self.count, self.count + len(tokens)
        here = slice(begin, self.count)
        self._hidden[here].copy_(hidden)
        self._tokens[here].copy_(tokens)
        self._positions[here].copy_(positions)
        self._slots[here].copy_(slots)

    def write(self) -> None:
        """Compute and store K and V of all deferred positions."""
        n, self.count = self.count, 0
        model = self._runner.model.model
        layer = model.layers[0]
        embedded = layer.input_layernorm(model.embed_tokens(self._tokens[:n]))
        fused = layer.hidden_norm(_fuse(model, self._hidden[:n]))
        _, k, v = layer.self_attn.forward_prepare_native(self._positions[:n], torch.cat([embedded, fused], dim=-1))
        attention = layer.self_attn.attn
        shape = (n, attention.tp_k_head_num, attention.head_dim)
        self._runner.token_to_kv_pool.set_kv_buffer(attention, self._slots[:n], k.reshape(shape), v.reshape(shape))


def _fuse(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The target's three hidden states as one of the draft's, as `LlamaModel.forward` of llama_eagle3 makes it."""
    if model.input_norm is not None:
        hidden = model.input_norm(hidden)
    if model.fc_norm is not None:
        chunks = hidden.chunk(model.num_aux_hidden_states, dim=-1)
        hidden = torch.cat([norm(chunk) for norm, chunk in zip(model.fc_norm, chunks, strict=True)], dim=-1)
    fused: torch.Tensor = model.fc(hidden)
    return fused
