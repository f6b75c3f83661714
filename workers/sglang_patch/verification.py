"""Verification by all that a request asked for: its penalties at each position, its `min_p` and its seed.

SGLang 0.5.23 verifies without `min_p`, so that only an answer's first token had it, and draws by a seed otherwise at each depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.kernels.ops.speculative.spec_tree import verify_tree_greedy_func
from sglang.srt.layers.sampler import multinomial_with_seed
from torch import Tensor

from workers.sglang_patch.penalties import Penalties


@dataclass
class _Step:
    """What `accept` needs of the step that `verify` is at. A scheduler process verifies one at a time."""

    penalties: Penalties | None = None
    sampling: Any = None
    positions: Tensor | None = None


_step = _Step()


def use(penalties: Penalties) -> None:
    """Verify by these penalties from now on."""
    _step.penalties = penalties


def verify(
    original: Any, verify_input: Any, batch: Any, logits_output: Any, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Around `eagle_sample`: which tokens follow each node, how many of them hold, and at which nodes."""
    assert _step.penalties is not None, "the worker says at its start which penalties"
    _step.sampling, _step.positions = batch.sampling_info, verify_input.positions
    chains = verify_input.draft_token.view(len(batch.reqs), -1)
    _step.penalties.apply(logits_output.next_token_logits, batch.reqs, chains)
    predicted, accepted, index = original(verify_input, batch, logits_output, *args, **kwargs)
    # The accepted nodes of a chain are its first ones.
    _step.penalties.count(batch.reqs, predicted.view_as(chains), accepted)
    return predicted, accepted, index


def accept(original: Any, *, target_probs: Tensor, **chains: Any) -> None:
    """Around `tree_speculative_sampling_target_only`: target_probs [batch, nodes, vocabulary]; the rest are chains to judge."""
    if _step.sampling.need_min_p_sampling:
        target_probs = keep_min_p(target_probs, _step.sampling.min_ps)
    if _step.sampling.sampling_seed is None:
        original(target_probs=target_probs, **chains)
    else:
        accept_by_seed(target_probs, _step.sampling.sampling_seed, _step.positions, chains)


def keep_min_p(probs: Tensor, min_ps: Tensor) -> Tensor:
    """Keep tokens of at least `min_ps[i]` times the likeliest one's probability, rescaled; probs [batch, nodes, vocabulary]."""
    kept = torch.where(probs >= probs.amax(-1, keepdim=True) * min_ps.view(-1, 1, 1), probs, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def accept_by_seed(probs: Tensor, seeds: Tensor, positions: Tensor | None, chains: dict[str, Any]) -> None:
    """Draw the token after each node by its request's seed and its position, and accept drafted tokens that were drawn.

    So a seed gives the same answer at any depth. A drafted token is accepted as often as by SGLang's way: with its probability.
    probs [batch, nodes, vocabulary], seeds [batch], positions [batch * nodes]; `chains` has what SGLang's kernel takes.
    """
    batch, nodes, _ = probs.shape
    drawn = multinomial_with_seed(probs.flatten(0, 1).log(), seeds.repeat_interleave(nodes), positions)
    verify_tree_greedy_func(
        predicts=chains["predicts"],
        accept_index=chains["accept_index"],
        accept_token_num=chains["accept_token_num"],
        candidates=chains["candidates"],
        retrieve_index=chains["retrive_index"],
        retrieve_next_token=chains["retrive_next_token"],
        retrieve_next_sibling=chains["retrive_next_sibling"],
        target_predict=drawn.view(batch, nodes),
        topk=1,
    )
