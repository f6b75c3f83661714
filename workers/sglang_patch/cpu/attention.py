"""Paged attention in plain torch, under the names of the AMX kernels that SGLang's CPU backend calls."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

_ROWS = 8
"""Query rows of each product."""
_KEYS = 64
"""Keys of each product."""
_HIDDEN = -1e30
"""Added to the score of a key that a token does not see: its weight is then 0."""

_DECODE = (
    "decode_attention_cpu(Tensor query, Tensor k_cache, Tensor v_cache, float k_scale, float v_scale, "
    "Tensor(a!) output, Tensor? key, Tensor? value, Tensor loc, Tensor attn_logits, Tensor req_to_token, "
    "Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn, "
    "int sliding_window_size, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_EXTEND = (
    "extend_attention_cpu(Tensor query, Tensor? key, Tensor? value, Tensor(a!) output, Tensor k_cache, "
    "Tensor v_cache, float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale, float logit_cap, "
    "bool is_cross_attn, int sliding_window_size, Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, "
    "bool is_causal) -> ()"
)


@cache
def register() -> torch.library.Library:
    """Registers `sgl_kernel::decode_attention_cpu` and `extend_attention_cpu` with torch, once; lives with the library."""
    library = torch.library.Library("sgl_kernel", "FRAGMENT")
    for schema, kernel in ((_DECODE, decode_attention_cpu), (_EXTEND, extend_attention_cpu)):
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CPU")
    return library


def attend(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    seq_lens: Tensor,
    scale: float,
    window: int = 0,
    causal: bool = True,
) -> Tensor:
    """Attention of each request's newest tokens over its cached ones.

    query [batch, new, heads, dim], caches [slots, kv_heads, dim], slots [batch, longest], seq_lens [batch] with the
    new tokens counted; a `window` above 0 hides tokens that far back. Returns [batch, new, heads, dim].

    A token's result is the same bit for bit whatever is beside it: every product is of `_ROWS` query rows and `_KEYS` keys,
    and keys that a token does not see add zeros.
    """
    batch, new, heads, dim = query.shape
    kv_heads, longest = k_cache.shape[1], slots.shape[1]
    # Query heads that share a key head are rows of one product, and so are a few tokens.
    group = heads // kv_heads
    tokens = max(1, _ROWS // group)
    used, rows = group * tokens, -(-group * tokens // _ROWS) * _ROWS
    pieces, blocks = -(-new // tokens), -(-longest // _KEYS)

    q = pad(query * scale, (0, 0, 0, 0, 0, pieces * tokens - new)).view(batch, pieces, tokens, kv_heads, group, dim)
    q = pad(q.permute(0, 3, 1, 4, 2, 5).reshape(batch * kv_heads, 1, pieces, used, dim), (0, 0, 0, rows - used))
    slots = pad(slots, (0, blocks * _KEYS - longest)).long()
    cached = (slots[:, None] * kv_heads + torch.arange(kv_heads)[:, None]).flatten()
    k = k_cache.flatten(0, 1).index_select(0, cached).view(batch * kv_heads * blocks, _KEYS, -1)
    v = v_cache.flatten(0, 1).index_select(0, cached).view(batch * kv_heads * blocks, _KEYS, -1)

    key_at = torch.arange(blocks * _KEYS).view(blocks, 1, 1, _KEYS)
    token = torch.arange(pieces)[:, None] * tokens + torch.arange(rows) % tokens
    query_at = (seq_lens[:, None, None] - new + token)[:, None, None, :, :, None]
    hidden = key_at > (query_at if causal else seq_lens.view(-1, 1, 1, 1, 1, 1) - 1)
    if window > 0:
        hidden |= key_at <= query_at - window

    scores = _products(q.expand(-1, blocks, -1, -1, -1).flatten(0, 1), k.transpose(1, 2))
    scores = scores.view(batch, kv_heads, blocks, pieces, rows, _KEYS).add_(hidden * _HIDDEN)
    weights = scores.sub_(scores.amax((2, 5), keepdim=True)).exp_()
    totals = weights.sum(-1, keepdim=True)
    sums = _products(weights.view(-1, pieces, rows, _KEYS), v).view(batch, kv_heads, blocks, pieces, rows, -1)
    # One block after the other: a sum over them all might take another order if there were more.
    out, total = sums[:, :, 0], totals[:, :, 0]
    for block in range(1, blocks):
        out, total = out + sums[:, :, block], total + totals[:, :, block]
    out = (out / total)[:, :, :, :used].view(batch, kv_heads, pieces, group, tokens, -1)
    return out.permute(0, 2, 4, 1, 3, 5).reshape(batch, pieces * tokens, heads, -1)[:, :new]


def _products(a: Tensor, b: Tensor) -> Tensor:
    """a [n, pieces, rows, x] times b [n, x, y]: [n, pieces, rows, y]."""
    n, pieces = a.shape[:2]
    if pieces <= n:
        return torch.stack([torch.bmm(a[:, piece], b) for piece in range(pieces)], 1)
    return torch.stack([torch.bmm(a[i], b[i].expand(pieces, -1, -1)) for i in range(n)])


def decode_attention_cpu(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k_scale: float,
    v_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """One new token for each request: stores its key and value at `loc`, then attends (out: `output`, the caches)."""
    _refuse(logit_cap, is_cross_attn, sinks)
    if key is not None and value is not None:
        k_cache[loc] = key.view(-1, *k_cache.shape[1:])
        v_cache[loc] = value.view(-1, *v_cache.shape[1:])
    slots = req_to_token[req_pool_indices, : int(seq_lens.max())]
    output.copy_(attend(query[:, None], k_cache, v_cache, slots, seq_lens, sm_scale, sliding_window_size)[:, 0])


def extend_attention_cpu(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    output: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Several new tokens for each request, packed in `query`; their keys and values are in the caches already."""
    _refuse(logit_cap, is_cross_attn, sinks)
    if tree_mask is not None:
        raise NotImplementedError("the CPU engine drafts chains only: speculative_eagle_topk=1")
    lens, totals = extend_seq_lens.tolist(), seq_lens.tolist()
    if min(lens) == max(lens):  # verify and draft-extend: all requests at once
        groups = [(slice(None), lens[0], max(totals))]
    else:  # prefill: padding would cost more than a loop
        groups = [(slice(i, i + 1), lens[i], totals[i]) for i in range(len(lens))]
    start = 0
    for rows, new, longest in groups:
        slots = req_to_token[req_pool_indices[rows], :longest]
        tokens = slice(start, start + new * slots.shape[0])
        q = query[tokens].view(-1, new, *query.shape[1:])
        out = attend(q, k_cache, v_cache, slots, seq_lens[rows], sm_scale, sliding_window_size, is_causal)
        output[tokens] = out.flatten(0, 1)
        start = tokens.stop


def _refuse(logit_cap: float, is_cross_attn: bool, sinks: Tensor | None) -> None:
    if logit_cap > 0 or is_cross_attn or sinks is not None:
        raise NotImplementedError("the CPU engine has no logit cap, cross attention or attention sinks")
