"""Each CPU op against a reference that works element by element."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from workers.sglang_patch import cpu
from workers.sglang_patch.cpu import attention, ops, sampling

SLOTS, KV_HEADS, HEADS, DIM = 512, 2, 4, 16


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(7)
    with torch.inference_mode():
        yield


def table(rows: int = 6, columns: int = 64) -> Tensor:
    return torch.randperm(SLOTS)[: rows * columns].view(rows, columns).int()


REQUESTS = torch.tensor([4, 0, 3])
STARTS = torch.tensor([5, 0, 17], dtype=torch.int32)
ENDS = torch.tensor([9, 0, 24], dtype=torch.int32)


def test_assign_req_to_token_pool_writes_each_span() -> None:
    pool = table()
    expected = pool.clone()
    fresh = torch.arange(1000, 1011)
    position = 0
    for row, start, end in zip(REQUESTS.tolist(), STARTS.tolist(), ENDS.tolist(), strict=True):
        for column in range(start, end):
            expected[row, column] = fresh[position]
            position += 1
    ops.assign_req_to_token_pool_cpu(REQUESTS, pool, STARTS, ENDS, fresh, pool.shape[1])
    assert torch.equal(pool, expected)


def test_assign_extend_cache_locs_packs_each_span() -> None:
    pool, out = table(), torch.full((12,), -1)
    ops.assign_extend_cache_locs_cpu(REQUESTS, pool, STARTS, ENDS, out, pool.shape[1])
    expected = [
        int(pool[row, column])
        for row, start, end in zip(REQUESTS.tolist(), STARTS.tolist(), ENDS.tolist(), strict=True)
        for column in range(start, end)
    ]
    assert out.tolist() == [*expected, -1]


def test_assign_draft_cache_locs_packs_the_slots_after_each_sequence() -> None:
    pool, out = table(), torch.empty(9, dtype=torch.int64)
    ops.assign_draft_cache_locs_contiguous_cpu(REQUESTS, pool, STARTS, out, pool.shape[1], 1, 3)
    assert out.tolist() == [
        int(pool[row, start + step]) for row, start in zip(REQUESTS.tolist(), STARTS.tolist(), strict=True) for step in range(3)
    ]


def test_fill_bonus_tokens_takes_the_last_accepted() -> None:
    tokens, lens, bonus = torch.arange(12), torch.tensor([1, 4, 2], dtype=torch.int32), torch.empty(3, dtype=torch.int32)
    ops.fill_bonus_tokens_cpu(tokens, lens, bonus, 4)
    assert bonus.tolist() == [0, 7, 9]


def test_fill_accept_out_cache_loc_packs_the_accepted() -> None:
    index = torch.tensor([[0, 1, -1], [3, -1, -1]], dtype=torch.int32)
    out = torch.zeros(6, dtype=torch.int64)
    ops.fill_accept_out_cache_loc_cpu(index, torch.arange(100, 106), out)
    assert out.tolist() == [100, 101, 103, 0, 0, 0]


def test_copy_all_layer_kv_cache_moves_slots_that_overlap() -> None:
    layers = [torch.randn(10, 3), torch.randn(10, 3)]
    expected = [layer.clone() for layer in layers]
    for layer in expected:
        layer[torch.tensor([2, 3])] = layer[torch.tensor([3, 7])].clone()
    pointers = torch.tensor([layer.data_ptr() for layer in layers], dtype=torch.uint64)
    strides = torch.tensor([12, 12])
    ops.copy_all_layer_kv_cache_cpu(pointers, strides, torch.tensor([2, 3]), torch.tensor([3, 7]))
    assert all(torch.equal(layer, wanted) for layer, wanted in zip(layers, expected, strict=True))


@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
def test_build_tree_is_a_chain(nodes: int) -> None:
    seq_lens = torch.tensor([7, 30])
    mask = torch.ones(2 * nodes * nodes, dtype=torch.bool)
    positions = torch.empty(2 * nodes, dtype=torch.int64)
    index, following, sibling = torch.full((3, 2, nodes), -1)
    ops.build_tree_kernel_efficient_cpu(
        torch.empty(2, 0), torch.empty(2, 0), seq_lens, mask, positions, index, following, sibling, 1, nodes - 1, nodes, 1
    )
    assert mask.view(2, nodes, nodes).tolist() == [[[c <= r for c in range(nodes)] for r in range(nodes)]] * 2
    assert positions.tolist() == [length + node for length in (7, 30) for node in range(nodes)]
    assert index.flatten().tolist() == list(range(2 * nodes))
    assert following.tolist() == [[*range(1, nodes), -1]] * 2
    assert sibling.tolist() == [[-1] * nodes] * 2


def test_build_tree_refuses_what_is_not_a_chain() -> None:
    with pytest.raises(NotImplementedError, match="topk=1"):
        ops.build_tree_kernel_efficient_cpu(*[torch.empty(0)] * 8, 2, 3, 4, 1)


def verifying(candidates: Tensor) -> dict[str, Tensor]:
    """What both ways to verify take: chains [batch, nodes], and where the result goes."""
    batch, nodes = candidates.shape
    index = torch.arange(batch * nodes).view(batch, nodes)
    return {
        "predicts": torch.zeros(batch * nodes, dtype=torch.int32),
        "accept_index": torch.full((batch, nodes), -1, dtype=torch.int32),
        "accept_token_num": torch.empty(batch, dtype=torch.int32),
        "candidates": candidates,
        "retrive_index": index,
        "retrive_next_token": index,
        "retrive_next_sibling": index,
    }


@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
def test_verify_greedy_accepts_the_longest_agreeing_prefix(nodes: int) -> None:
    batch = 64
    candidates, target = torch.randint(2, (2, batch, nodes))
    chains = verifying(candidates)
    ops.verify_tree_greedy_cpu(**chains, target_predict=target)
    predicts, accept_index, accepted = chains["predicts"], chains["accept_index"], chains["accept_token_num"]
    for row in range(batch):
        count = 0
        while count + 1 < nodes and candidates[row, count + 1] == target[row, count]:
            count += 1
        assert accepted[row] == count
        kept = [row * nodes + node for node in range(count + 1)]
        assert accept_index[row].tolist() == kept + [-1] * (nodes - 1 - count)
        assert predicts[kept].tolist() == target[row, : count + 1].tolist()


def test_draft_metadata_is_the_rows_of_the_batch() -> None:
    pool = table()
    rows = ops.build_draft_decode_metadata_cpu(pool, REQUESTS, STARTS, 1, 3, pool.shape[1])
    assert torch.equal(rows, pool[REQUESTS, : 17 + 3])


class Cache:
    """Random keys and values, and the naive attention over them."""

    def __init__(self) -> None:
        self.k = torch.randn(SLOTS, KV_HEADS, DIM)
        self.v = torch.randn(SLOTS, KV_HEADS, DIM)

    def attend(self, query: Tensor, slots: Tensor, window: int = 0) -> Tensor:
        """query [heads, dim] at the last of `slots`; [heads, dim]."""
        slots = slots[-window:] if window else slots
        out = torch.empty(HEADS, DIM)
        for head in range(HEADS):
            shared = head // (HEADS // KV_HEADS)
            scores = torch.stack([query[head] @ self.k[slot, shared] for slot in slots.tolist()]) / math.sqrt(DIM)
            out[head] = scores.softmax(0) @ self.v[slots.long(), shared]
        return out


def run_extend(
    cache: Cache, query: Tensor, pool: Tensor, requests: Tensor, seq_lens: Tensor, lens: Tensor, window: int = 0
) -> Tensor:
    out = torch.empty_like(query)
    starts = lens.cumsum(0) - lens
    attention.extend_attention_cpu(
        query, None, None, out, cache.k, cache.v, 1.0, 1.0, pool, requests, seq_lens, lens, starts, int(lens.max()),
        1 / math.sqrt(DIM), 0.0, False, window, None, None, None, True,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("lens", [[4, 4, 4], [1, 1, 1], [9, 2, 30]])
def test_extend_attends_to_prefix_and_earlier_new_tokens(lens: list[int], window: int) -> None:
    cache, pool = Cache(), table()
    seq_lens = torch.tensor([12, 5, 31])
    query = torch.randn(sum(lens), HEADS, DIM)
    out = run_extend(cache, query, pool, REQUESTS, seq_lens, torch.tensor(lens, dtype=torch.int32), window)
    position = 0
    for row, length, new in zip(REQUESTS.tolist(), seq_lens.tolist(), lens, strict=True):
        for seen in range(length - new + 1, length + 1):
            torch.testing.assert_close(out[position], cache.attend(query[position], pool[row, :seen], window))
            position += 1


def test_decode_stores_its_key_and_value_and_attends() -> None:
    attention.register()
    cache, pool = Cache(), table()
    seq_lens = torch.tensor([12, 1, 31])
    query, key, value = torch.randn(3, HEADS, DIM), *torch.randn(2, 3, KV_HEADS, DIM)
    loc = pool[REQUESTS, seq_lens - 1].long()
    out = torch.empty_like(query)
    torch.ops.sgl_kernel.decode_attention_cpu(
        query, cache.k, cache.v, 1.0, 1.0, out, key, value, loc, torch.empty(0), pool, REQUESTS, seq_lens,
        1 / math.sqrt(DIM), 0.0, False, 0, None, None,
    )  # fmt: skip
    assert torch.equal(cache.k[loc], key)
    assert torch.equal(cache.v[loc], value)
    for i, (row, length) in enumerate(zip(REQUESTS.tolist(), seq_lens.tolist(), strict=True)):
        torch.testing.assert_close(out[i], cache.attend(query[i], pool[row, :length]))


@pytest.mark.parametrize("threads", [1, 2])
def test_no_row_depends_on_what_is_beside_it(threads: int) -> None:
    """In a process with an engine's environment, which MKL reads when it is loaded."""
    environment = {**os.environ, **cpu.environment(threads)}
    checked = subprocess.run([sys.executable, "-m", "tests.worker.bitwise"], env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_top_k_and_top_p_keep_the_likeliest() -> None:
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.05, 0.6, 0.1]])
    kept = sampling.top_k_renorm_prob(probs, torch.tensor([1, 2]))
    torch.testing.assert_close(kept, torch.tensor([[0, 1.0, 0, 0], [0.25 / 0.85, 0, 0.6 / 0.85, 0]]))
    kept = sampling.top_p_renorm_prob(probs, torch.tensor([0.65, 1.0]))
    torch.testing.assert_close(kept, torch.tensor([[0, 4 / 7, 0, 3 / 7], [0.25, 0.05, 0.6, 0.1]]))


def sample_chains(candidates: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    """Accepted counts [batch] and predicted tokens [batch, nodes]."""
    batch, nodes = candidates.shape
    chains = verifying(candidates)
    sampling.chain_sampling_target_only(
        **chains,
        uniform_samples=torch.rand(batch, nodes),
        uniform_samples_for_final_sampling=torch.rand(batch),
        target_probs=probs,
        draft_probs=torch.zeros_like(probs),
        threshold_single=1.0,
        threshold_acc=1.0,
        deterministic=True,
    )
    accepted = chains["accept_token_num"]
    kept = torch.arange(nodes) <= accepted[:, None]
    assert torch.equal(chains["accept_index"], torch.where(kept, chains["retrive_index"], -1).int())
    return accepted, chains["predicts"].view(batch, nodes)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_sampled_text_is_distributed_as_without_drafts(nodes: int) -> None:
    batch, law = 40_000, torch.tensor([0.5, 0.3, 0.2, 0.0])
    candidates = torch.randint(4, (batch, nodes))
    accepted, predicts = sample_chains(candidates, law.expand(batch, nodes, 4).contiguous())
    for node in range(nodes):
        shown = predicts[accepted >= node, node]
        assert torch.all(predicts[accepted > node, node] == candidates[accepted > node, node + 1]) if node + 1 < nodes else True
        counts = torch.bincount(shown.long(), minlength=4) / len(shown)
        torch.testing.assert_close(counts, law, atol=0.03, rtol=0)
    assert not torch.any(predicts[torch.arange(batch), accepted.long()] == 3)


def test_sampling_at_temperature_0_is_greedy() -> None:
    target = torch.randint(2, (64, 4))
    candidates = torch.randint(2, (64, 4))
    accepted, predicts = sample_chains(candidates, torch.nn.functional.one_hot(target, 2).float())
    agreeing = (candidates[:, 1:] == target[:, :-1]).long().cumprod(1).sum(1)
    assert torch.equal(accepted, agreeing.int())
    assert all(torch.equal(predicts[i, : n + 1], target[i, : n + 1].int()) for i, n in enumerate(agreeing.tolist()))
