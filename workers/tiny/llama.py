# mypy: allow-untyped-decorators
"""The target: a Llama of four million parameters, its training and its greedy or sampled text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache

from workers.tiny.batches import Mixture
from workers.tiny.schedule import mixed_precision, optimizer_for, set_learning_rate
from workers.tiny.tokenizer import BOS_ID, EOS_ID, IM_END_ID, VOCABULARY

MAX_LENGTH = 2048
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": MAX_LENGTH,
    "rms_norm_eps": 1e-5,
    "bos_token_id": BOS_ID,
    "eos_token_id": [IM_END_ID, EOS_ID],
    "pad_token_id": EOS_ID,
    "dtype": "bfloat16",
}
LAYERS = 6


def new_target(device: str) -> LlamaForCausalLM:
    """An untrained target in float32; the LM head is the embedding."""
    config = LlamaConfig(**SHAPE, num_hidden_layers=LAYERS, tie_word_embeddings=True)
    model = LlamaForCausalLM(config).float().to(device)
    model.generation_config = GenerationConfig(
        bos_token_id=BOS_ID, eos_token_id=[IM_END_ID, EOS_ID], pad_token_id=EOS_ID, do_sample=False
    )
    return model


def load_target(folder: Path, device: str) -> LlamaForCausalLM:
    """A saved target, in bfloat16 as it is served."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    return model.to(device).eval().requires_grad_(False)


def next_token_loss(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """Mean cross entropy, in nats a token."""
    with mixed_precision(tokens.device):
        logits = model(tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, windows: Tensor) -> float:
    losses = [next_token_loss(model, part).item() for part in windows.split(16)]
    return float(sum(losses) / len(losses))


def train_target(model: LlamaForCausalLM, data: Mixture, held_out: Tensor, *, steps: int, batch: int, length: int) -> float:
    """Train, and leave the model with the weights of its best held-out loss. Returns that loss."""
    optimizer = optimizer_for(model, weight_decay=0.1)
    best, kept, start = float("inf"), model.state_dict(), time.perf_counter()
    for step in range(1, steps + 1):
        set_learning_rate(optimizer, step, steps, peak=3e-3)
        loss = next_token_loss(model, data.sample(batch, length))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % max(1, steps // 12) == 0:
            current = held_out_loss(model, held_out)
            seconds = time.perf_counter() - start
            print(f"target step {step}: loss {loss.item():.3f}, held-out {current:.3f}, {seconds:.0f} s", flush=True)
            if current < best:
                best = current
                kept = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)
    return best


@torch.no_grad()
def generate(model: LlamaForCausalLM, prompts: Tensor, count: int, temperature: Tensor | None = None) -> Tensor:
    """Continue every prompt by `count` tokens, past any end token; a row of temperature 0 is greedy."""
    cache = DynamicCache(config=model.config)
    tokens, rows = prompts, [prompts]
    for _ in range(count):
        logits = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1].float()
        if temperature is not None:
            gumbel = -torch.empty_like(logits).exponential_().log()
            logits = logits + temperature[:, None] * gumbel
        tokens = logits.argmax(-1, keepdim=True)
        rows.append(tokens)
    return torch.cat(rows, dim=1)
