"""Verification at temperatures above 0 in plain torch. On a CPU, SGLang itself would commit the likeliest token instead."""

from __future__ import annotations

import torch
from torch import Tensor


def top_k_renorm_prob(probs: Tensor, top_k: Tensor) -> Tensor:
    """Keeps each row's `top_k[i]` likeliest tokens, rescaled to sum to 1; probs [rows, vocab], top_k [rows]."""
    ordered = probs.sort(-1, descending=True).values
    last = (top_k.long().clamp(max=probs.shape[-1]) - 1)[:, None]
    return _rescale(probs, ordered.gather(1, last))


def top_p_renorm_prob(probs: Tensor, top_p: Tensor) -> Tensor:
    """Keeps each row's fewest likeliest tokens that together reach `top_p[i]`, rescaled; probs [rows, vocab]."""
    ordered = probs.sort(-1, descending=True).values
    before = ordered.cumsum(-1) - ordered
    last = (before < top_p[:, None]).sum(-1, keepdim=True).clamp(min=1) - 1
    return _rescale(probs, ordered.gather(1, last))


def chain_sampling_target_only(
    *,
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,
    threshold_single: float,
    threshold_acc: float,
    deterministic: bool,
) -> None:
    """Accepts each drafted token with the target's own probability of it, and draws the first one after the accepted.

    `candidates`, `uniform_samples` [batch, nodes], `target_probs` [batch, nodes, vocab]; outputs as in
    `verify_tree_greedy_cpu`. A refused token is left out of the draw, so that the text is distributed as without drafts.
    """
    batch, width = accept_index.shape
    drafted = candidates[:, 1:width].long()
    chance = target_probs[:, : width - 1].gather(2, drafted[:, :, None]).squeeze(2)
    coins = uniform_samples[:, : width - 1]
    taken = (chance > 0) & ((coins < chance / threshold_acc) | (chance >= threshold_single))
    accepted = taken.long().cumprod(1).sum(1)
    rest = target_probs[torch.arange(batch), accepted]
    if width > 1:
        refused = drafted.gather(1, accepted.clamp(max=width - 2)[:, None])
        rest = torch.where(accepted[:, None] < width - 1, rest.scatter(1, refused, 0.0), rest)
    reached = rest.cumsum(1)
    # The last token of any weight, where rounding puts the coin past the end.
    end = (rest > 0).long().cumsum(1).argmax(1)
    drawn = (reached <= uniform_samples_for_final_sampling[:, None] * reached[:, -1:]).sum(1).minimum(end)
    node = torch.arange(width)
    accept_index.copy_(torch.where(node <= accepted[:, None], retrive_index[:, :width], -1))
    accept_token_num.copy_(accepted)
    rows = predicts.view(batch, -1)
    rows[:, : width - 1] = drafted.to(rows.dtype)
    rows.scatter_(1, accepted[:, None], drawn[:, None].to(rows.dtype))


def _rescale(probs: Tensor, least: Tensor) -> Tensor:
    kept = torch.where(probs >= least, probs, 0.0)
    return kept / kept.sum(-1, keepdim=True)
