"""That what stands beside a row changes none of its bits, in the arithmetic that an engine on the CPU has.

A program of its own, because MKL reads its environment once: `python -m tests.worker.bitwise` with `cpu.environment()`.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor
from torch.nn.functional import linear

from workers.sglang_patch.cpu import attention, exact

# Outputs and inputs of the tiny pair's products: projections, MLP, LM head, the draft's fusion; halves, for two ranks.
SIZES = [(512, 256), (256, 256), (1024, 256), (256, 512), (2048, 256), (256, 768), (512, 512), (256, 128), (256, 384)]
ROWS = [*range(1, 130), 200, 333, 512, 1000]
SLOTS, KV_HEADS, HEADS, DIM = 6000, 2, 4, 64


def check_products() -> None:
    """Any number of rows, and any place among them."""
    for size in SIZES:
        rows, weight = torch.randn(1024, size[1]), torch.randn(size)
        whole = linear(rows, weight)
        for count in ROWS:
            some = linear(exact.fill_rows(rows[:count]), weight)[:count]
            assert torch.equal(some, whole[:count]), f"{count} rows of a product by {size} differ from 1,024"
        for shift in range(1, exact.ROWS):
            shifted = linear(rows.roll(shift, 0), weight).roll(-shift, 0)
            assert torch.equal(shifted, whole), f"rows of a product by {size} differ if they stand {shift} further on"


def check_attention() -> None:
    """A token decoded alone, verified in a run beside another request, and prefilled with many."""
    k, v = torch.randn(2, SLOTS, KV_HEADS, DIM)

    def attend(query: Tensor, slots: Tensor, *lengths: int) -> Tensor:
        longest = max(lengths)
        return attention.attend(query, k, v, slots[: len(lengths), :longest], torch.tensor(lengths), DIM**-0.5)

    for context in (8, 30, 64, 100, 128, 190, 300, 512, 640, 700, 1000, 1500, 1990):
        for new in (1, 2, 4, 8):
            length, beside = context + random.randrange(8), random.choice([12, 200, 500, 1000, 2000])
            slots = torch.randperm(SLOTS)[: 2 * 2048].view(2, 2048).int()
            query = torch.randn(2, new, HEADS, DIM)
            alone = [attend(query[:1, i : i + 1], slots, length - new + 1 + i) for i in range(new)]
            together = attend(query, slots, length, beside)
            assert torch.equal(together[:1], torch.cat(alone, 1)), f"a run of {new} at {length} beside one at {beside}"
            earlier = torch.randn(1, min(length, 512) - new, HEADS, DIM)
            prefilled = attend(torch.cat([earlier, query[:1]], 1), slots, length)
            assert torch.equal(prefilled[:, -new:], together[:1]), f"the last {new} of a prefill of {length}"


if __name__ == "__main__":
    torch.manual_seed(7)
    random.seed(7)
    with torch.inference_mode():
        check_products()
        check_attention()
