# mypy: allow-untyped-decorators
"""What a serving engine would accept: chains of topk 1 against the target's greedy text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from workers.tiny.distill import read_target
from workers.tiny.eagle import Eagle3Draft


@dataclass(frozen=True)
class Acceptance:
    """Figures over all steps of all rows."""

    accept_length: float  # tokens that a step yields, the bonus token included
    by_position: list[float]  # chance that draft k is accepted, given that those before it were


@torch.no_grad()
def accepted_from(draft: Eagle3Draft, target: LlamaForCausalLM, tokens: Tensor, depth: int) -> Tensor:
    """How many drafts are accepted in a step that starts at each position.

    Greedy verification accepts exactly the drafts that equal the text, and up to the first wrong one the draft's own
    tokens equal the text. So one pass over the finished text counts for every step that an engine could make.
    """
    features, embeds, _ = read_target(target, tokens)
    guesses = [logits.argmax(-1) for logits in draft.chain(features, embeds, depth)]
    length = guesses[0].shape[1]
    right = torch.stack([guess == tokens[:, 2 + k :][:, :length] for k, guess in enumerate(guesses)])
    return right.long().cumprod(0).sum(0)


def measure(draft: Eagle3Draft, target: LlamaForCausalLM, text: Tensor, prompt: int, depth: int) -> Acceptance:
    """Walk through `text`, the target's greedy continuations, as an engine would: from each bonus token on."""
    counts: list[int] = []
    for part in text.split(64):
        for row in accepted_from(draft, target, part, depth).tolist():
            position = prompt - 1  # the last prompt token; the token after it is prefill's own
            while position < len(row):
                counts.append(row[position])
                position += row[position] + 1
    reached = [sum(count >= k for count in counts) for k in range(depth + 1)]
    by_position = [reached[k + 1] / max(1, reached[k]) for k in range(depth)]
    return Acceptance(1 + sum(counts) / len(counts), by_position)
