"""AdamW, its learning rate and its precision, the same for both models."""

from __future__ import annotations

import math

import torch
from torch import nn

WARMUP = 0.05  # share of the steps
FLOOR = 0.05  # share of the peak that is left at the end


def optimizer_for(model: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; vectors (the norms) do not decay."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trainable if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trainable if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95))


def set_learning_rate(optimizer: torch.optim.Optimizer, step: int, steps: int, peak: float) -> None:
    """A linear warm-up, then a cosine down to the floor."""
    progress = step / steps
    cosine = 0.5 * (1 + math.cos(math.pi * (progress - WARMUP) / (1 - WARMUP)))
    share = progress / WARMUP if progress < WARMUP else FLOOR + (1 - FLOOR) * cosine
    for group in optimizer.param_groups:
        group["lr"] = peak * share


def mixed_precision(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU. Many CPUs only emulate it, far slower than float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
