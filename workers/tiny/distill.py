# mypy: allow-untyped-decorators
"""Train the draft on the target's own text, by training-time test: chains of several steps on its own states."""

from __future__ import annotations

import time

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from workers.tiny.batches import Mixture
from workers.tiny.eagle import Eagle3Draft, fused_input
from workers.tiny.llama import generate
from workers.tiny.schedule import mixed_precision, optimizer_for, set_learning_rate

CHAIN = 5  # steps unrolled in training
DISCOUNT = 0.8  # weight of a step against the one before: a later draft counts only if those before it were right


def own_text(target: LlamaForCausalLM, data: Mixture, *, rows: int, prompt: int, length: int) -> Tensor:
    """Continuations of training prompts by the target: half greedy, half sampled at temperatures up to 1."""
    parts = []
    for _ in range(0, rows, 2048):
        prompts = data.sample(min(rows, 2048), prompt)
        temperature = torch.rand(len(prompts), device=prompts.device).mul(2).sub(1).clamp(min=0)
        parts.append(generate(target, prompts, length - prompt, temperature))
    return torch.cat(parts)


@torch.no_grad()
def read_target(target: LlamaForCausalLM, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The target's states that the draft reads, the embeddings of the tokens, and the target's logits."""
    output = target(tokens, use_cache=False, output_hidden_states=True)
    return fused_input(output.hidden_states), output.hidden_states[0], output.logits


def chain_loss(draft: Eagle3Draft, target: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """Cross entropy against the target's distribution, the mean over the steps of a chain."""
    features, embeds, logits = read_target(target, tokens)
    goal = logits.float().softmax(-1)
    total, weight = torch.zeros((), device=tokens.device), 0.0
    with mixed_precision(tokens.device):
        for step, guess in enumerate(draft.chain(features, embeds, CHAIN)):
            wanted = goal[:, 1 + step :][:, : guess.shape[1]]
            loss = -(wanted * guess.float().log_softmax(-1)).sum(-1).mean()
            total = total + DISCOUNT**step * loss
            weight += DISCOUNT**step
    return total / weight


def train_draft(draft: Eagle3Draft, target: LlamaForCausalLM, data: Mixture, own: Tensor, *, steps: int, batch: int) -> None:
    """Train on batches that are three parts the target's own text and one part library text."""
    with torch.no_grad():
        draft.lm_head.weight.copy_(target.lm_head.weight)
    optimizer = optimizer_for(draft, weight_decay=0.05)
    library, start = batch // 4, time.perf_counter()
    for step in range(1, steps + 1):
        set_learning_rate(optimizer, step, steps, peak=2e-3)
        picks = torch.randint(len(own), (batch - library,), device=own.device)
        loss = chain_loss(draft, target, torch.cat([own[picks], data.sample(library, own.shape[1])]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % max(1, steps // 10) == 0:
            print(f"draft step {step}: loss {loss.item():.3f}, {time.perf_counter() - start:.0f} s", flush=True)
