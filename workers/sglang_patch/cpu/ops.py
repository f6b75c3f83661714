"""The integer bookkeeping that SGLang's EAGLE path asks of `sgl_kernel` on a CPU, in plain torch.

Names and argument orders are those that SGLang calls; arguments marked *out* are written in place.
Drafts are chains (`speculative_eagle_topk=1`), the only shape whose depth SGLang can change while it runs.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def _spans(rows: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Index pairs (row, column) of all columns `start[i]..end[i]` of each `rows[i]`, in order; each int64 [total]."""
    lens = (end - start).long()
    first = lens.cumsum(0) - lens
    columns = torch.arange(int(lens.sum())) + (start.long() - first).repeat_interleave(lens)
    return rows.long().repeat_interleave(lens), columns


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, cache_loc: Tensor, pool_len: int
) -> None:
    """Writes the packed `cache_loc` [total] into columns `start[i]..end[i]` of each request's row (out: `req_to_token`)."""
    rows, columns = _spans(req_pool_indices, start, end)
    req_to_token[rows, columns] = cache_loc[: rows.numel()].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor, req_to_token: Tensor, start: Tensor, end: Tensor, cache_loc: Tensor, pool_len: int
) -> None:
    """Packs columns `start[i]..end[i]` of each request's row into `cache_loc` [total] (out)."""
    rows, columns = _spans(req_pool_indices, start, end)
    cache_loc[: rows.numel()] = req_to_token[rows, columns].to(cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Packs the `topk * num_steps` slots after each request's committed tokens into `cache_loc` (out)."""
    columns = seq_lens.long()[:, None] + torch.arange(topk * num_steps)
    cache_loc.copy_(req_to_token[req_pool_indices.long()[:, None], columns].flatten())


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus: Tensor, accept_stride: int) -> None:
    """The last accepted token of each request, from rows of `accept_stride` tokens (out: `bonus` [batch])."""
    rows = torch.arange(accept_lens.numel()) * accept_stride
    bonus.copy_(accept_tokens.flatten()[rows + accept_lens.long() - 1])


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, cache_loc: Tensor, accept_cache_loc: Tensor) -> None:
    """Packs the cache slots of the accepted nodes (index above -1), in order (out: `accept_cache_loc`)."""
    accepted = accept_index.flatten()
    accepted = accepted[accepted > -1].long()
    accept_cache_loc[: accepted.numel()] = cache_loc[accepted].to(accept_cache_loc.dtype)


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, target: Tensor, source: Tensor) -> None:
    """Copies cache slots `source` onto `target` in each buffer; slot `i` is `stride` bytes at `ptr + i * stride`."""
    if source.numel() == 0:
        return
    source, target = source.long(), target.long()
    slots = int(torch.maximum(source.max(), target.max())) + 1
    for pointer, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (slots * stride)).from_address(pointer)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(slots, stride)
        buffer[target] = buffer[source]


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    num_nodes: int,
    tree_mask_mode: int,
) -> None:
    """The tree of each request's draft, here a chain of `num_nodes` (out: `tree_mask`, `positions`, `retrieve_*`).

    `tree_mask` is [batch * nodes * nodes] (SGLang's QLEN_ONLY mode), `retrieve_*` are [batch, nodes].
    """
    if topk != 1 or tree_mask_mode != 1:
        raise NotImplementedError("the CPU engine drafts chains only: speculative_eagle_topk=1")
    batch, nodes = seq_lens.numel(), torch.arange(num_nodes)
    visible = nodes[:, None] >= nodes
    tree_mask[: batch * num_nodes * num_nodes].view(batch, num_nodes, num_nodes).copy_(visible)
    positions.view(batch, num_nodes).copy_(seq_lens[:, None] + nodes)
    retrieve_index.copy_(torch.arange(batch * num_nodes).view(batch, num_nodes))
    retrieve_next_token.copy_(torch.where(nodes + 1 < num_nodes, nodes + 1, -1))
    retrieve_next_sibling.fill_(-1)


def verify_tree_greedy_cpu(
    *,
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Accepts each chain's longest prefix that the target would itself have chosen, and one bonus token.

    `candidates` and `target_predict` are [batch, nodes]; node 0 is the last committed token.
    Out: `predicts` [batch * nodes], `accept_index` [batch, depth + 1] (-1 past the end), `accept_token_num` [batch]
    (without the bonus).
    """
    batch, width = accept_index.shape
    hits = candidates[:, 1:width] == target_predict[:, : width - 1]
    accepted = hits.long().cumprod(1).sum(1)
    kept = torch.arange(width) <= accepted[:, None]
    accept_index.copy_(torch.where(kept, retrive_index[:, :width], -1))
    rows = predicts.view(batch, -1)[:, :width]
    rows.copy_(torch.where(kept, target_predict[:, :width].to(rows.dtype), rows))
    accept_token_num.copy_(accepted)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """Cache slots that each draft may look at: its committed tokens, then its own steps; int32 [batch, columns]."""
    if topk != 1:
        raise NotImplementedError("the CPU engine drafts chains only: speculative_eagle_topk=1")
    columns = min(pool_len, int(seq_lens.max()) + num_steps)
    return req_to_token[req_pool_indices.long(), :columns]
