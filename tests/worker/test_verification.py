"""Sampled verification by `min_p` and by seeds, without an engine: seeds count in SGLang's deterministic mode, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sglang.srt.layers import sampler
from torch import Tensor

from workers.sglang_patch import verification
from workers.sglang_patch.cpu import ops

VOCABULARY, TOKENS = 12, 300


def mixed(seeds: Tensor, positions: Tensor, columns: Tensor) -> Tensor:
    """A hash [rows, columns] of 32 bits, in place of SGLang's kernel for GPUs."""
    x = seeds.long()[:, None] * 1_000_003 + positions[:, None] * 7_919 + columns * 104_729 + 12_345
    for _ in range(3):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(**case: Any) -> None:
        case.pop("topk")
        ops.verify_tree_greedy_cpu(**{name.replace("retrieve", "retrive"): value for name, value in case.items()})

    monkeypatch.setattr(sampler, "murmur_hash32", mixed)
    monkeypatch.setattr(verification, "verify_tree_greedy_func", greedy)
    torch.manual_seed(3)


def sampled(law: Tensor, seed: int, depth: int) -> tuple[list[int], int]:
    """Tokens drawn from law [vocabulary, vocabulary], of the token after each, and in how many steps. Drafts are random."""
    text, steps, nodes = [0], 0, depth + 1
    while len(text) <= TOKENS:
        chain = torch.cat([torch.tensor(text[-1:]), torch.randint(VOCABULARY, (depth,))])[None]
        found = {
            "predicts": torch.zeros(nodes, dtype=torch.int32),
            "accept_index": torch.zeros((1, nodes), dtype=torch.int32),
            "accept_token_num": torch.zeros(1, dtype=torch.int32),
            "candidates": chain,
            **dict.fromkeys(("retrive_index", "retrive_next_token", "retrive_next_sibling"), torch.arange(nodes)[None]),
        }
        positions = len(text) - 1 + torch.arange(nodes)
        verification.accept_by_seed(law[chain], torch.tensor([seed]), positions, found)
        text += found["predicts"][: int(found["accept_token_num"]) + 1].tolist()
        steps += 1
    return text[: TOKENS + 1], steps


def test_a_seed_gives_the_same_text_at_any_depth() -> None:
    law = torch.rand(VOCABULARY, VOCABULARY).pow(3)
    law /= law.sum(-1, keepdim=True)
    text, steps = sampled(law, 5, depth=0)
    assert steps == TOKENS
    for depth in (1, 3):
        again, steps = sampled(law, 5, depth)
        assert again == text
        assert steps < TOKENS, "no drafted token was accepted"
    assert sampled(law, 6, depth=0)[0] != text


def test_a_seed_draws_from_the_target_s_distribution() -> None:
    law = torch.tensor([0.5, 0.3, 0.2, *[0.0] * (VOCABULARY - 3)]).expand(VOCABULARY, -1)
    counts = sum(torch.bincount(torch.tensor(sampled(law, seed, depth=2)[0][1:]), minlength=VOCABULARY) for seed in range(30))
    assert isinstance(counts, Tensor)
    torch.testing.assert_close(counts / counts.sum(), law[0], atol=0.02, rtol=0)


def test_min_p_keeps_what_is_near_the_likeliest() -> None:
    probs = torch.tensor([[[0.5, 0.3, 0.04, 0.16]], [[0.5, 0.3, 0.04, 0.16]]])
    kept = verification.keep_min_p(probs, torch.tensor([0.2, 0.0]))
    torch.testing.assert_close(kept[0, 0], torch.tensor([0.5, 0.3, 0.0, 0.16]) / 0.96)
    torch.testing.assert_close(kept[1, 0], probs[1, 0])
