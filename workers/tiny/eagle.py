# mypy: allow-subclassing-any
"""The draft: one decoder layer in the EAGLE-3 form that SGLang loads as `LlamaForCausalLMEagle3`.

At position i the draft reads the target's hidden states of token i, fused from three layers, and the embedding of token
i+1. It predicts token i+2. In each further step of a chain its own output, before the final norm, takes the place of the
target's hidden states. Parameters are named as in a checkpoint; the embedding is the target's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    apply_rotary_pos_emb,
    repeat_kv,
)

from workers.tiny.llama import SHAPE

# The layers whose output the draft reads. SGLang's default, [2, n//2, n-3], needs a deeper target. The output of the last
# layer is not available, since SGLang reads each output at the entry of the next layer.
AUX_LAYERS = (1, 3, 4)


def draft_config() -> LlamaConfig:
    """The draft's `config.json`; with as many draft tokens as the target has, no d2t table is needed."""
    return LlamaConfig(
        **SHAPE,
        num_hidden_layers=1,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLMEagle3"],
        draft_vocab_size=SHAPE["vocab_size"],
        eagle_config={"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS)},
    )


def fused_input(hidden_states: tuple[Tensor, ...]) -> Tensor:
    """The target's states as the draft reads them; entry k+1 of a Hugging Face model is the output of layer k."""
    return torch.cat([hidden_states[layer + 1] for layer in AUX_LAYERS], dim=-1)


def rotation(positions: Tensor, config: LlamaConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of RoPE. Computed each time: a cast of the draft to bfloat16 would round a buffer."""
    exponents = torch.arange(0, config.head_dim, 2, device=positions.device) / config.head_dim
    angles = positions[..., None] / config.rope_parameters["rope_theta"] ** exponents
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


class ChainAttention(nn.Module):
    """Attention of one chain step: to all true positions before it, and to the steps of its own chain."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        width, kv_width = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(2 * width, width, bias=False)
        self.k_proj = nn.Linear(2 * width, kv_width, bias=False)
        self.v_proj = nn.Linear(2 * width, kv_width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """`past` holds the keys and values of the earlier steps, and gets this step's."""
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, *rotary)
        past.append((repeat_kv(key, self.groups), repeat_kv(value, self.groups)))
        keys, values = (torch.cat(parts, dim=2) for parts in zip(*past, strict=True))
        own = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        mask = torch.cat([torch.ones_like(own).tril(), *[own] * (len(past) - 1)], dim=1)
        attended = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask[None, None])
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class ChainLayer(nn.Module):
    """A Llama layer whose attention reads [embedding, hidden], each under a norm of its own."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = ChainAttention(config)
        self.mlp = LlamaMLP(config)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, embeds: Tensor, hidden: Tensor, rotary: tuple[Tensor, Tensor], past: list[tuple[Tensor, Tensor]]) -> Tensor:
        both = torch.cat([self.input_layernorm(embeds), self.hidden_norm(hidden)], dim=-1)
        hidden = hidden + self.self_attn(both, rotary, past)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Draft(nn.Module):
    """The whole draft."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(AUX_LAYERS) * config.hidden_size, config.hidden_size, bias=False)
        self.midlayer = ChainLayer(config)
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)

    def chain(self, features: Tensor, embeds: Tensor, steps: int) -> Iterator[Tensor]:
        """For each step s the logits of token i+2+s at all positions i that have a whole chain of known tokens."""
        length = features.shape[1] - steps - 1
        hidden = self.fc(features[:, :length].to(self.fc.weight.dtype))
        past: list[tuple[Tensor, Tensor]] = []
        for step in range(steps):
            positions = torch.arange(step, step + length, device=features.device)[None]
            rotary = rotation(positions, self.config, hidden.dtype)
            hidden = self.midlayer(embeds[:, 1 + step :][:, :length], hidden, rotary, past)
            yield self.lm_head(self.norm(hidden))

    def save(self, folder: Path) -> None:
        """Write `config.json` and the weights, in bfloat16."""
        folder.mkdir(parents=True, exist_ok=True)
        self.config.save_pretrained(folder)
        weights = {name: value.to(torch.bfloat16).contiguous() for name, value in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def load(cls, folder: Path) -> Eagle3Draft:
        """A saved draft, in bfloat16 as it is served."""
        draft: Eagle3Draft = cls(LlamaConfig.from_pretrained(folder)).bfloat16()
        draft.load_state_dict(load_file(folder / "model.safetensors"))
        draft.eval().requires_grad_(False)
        return draft
