"""Penalties and `min_tokens` at each position of a run, as they stand after the tokens before it.

SGLang 0.5.23 tells its penalizers the last token of an accepted run alone, and under overlap scheduling one step late, and it
applies one state of them to all positions that it verifies. So an answer depended on the depth. Here how often each token
occurred is counted where tokens are sampled, in the order of the forward passes, so that no step waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Terms:
    """What the requests of a batch that have penalties ask for; m of them."""

    places: Tensor  # in the batch [m]
    rows: Tensor  # in the counts [m]
    frequency: Tensor  # [m, 1]
    presence: Tensor  # [m, 1]
    repetition: Tensor  # [m, 1]
    min_tokens: Tensor  # [m, 1]
    stops: Tensor  # tokens that end an answer [m, most]; a row that has fewer repeats its first
    adds: bool  # whether there is a frequency or presence penalty
    scales: bool  # whether there is a repetition penalty
    stays: bool  # whether there are min_tokens


class Penalties:
    """Counts the output tokens of the requests that have penalties, and applies these to logits."""

    def __init__(self, vocabulary: int, device: str) -> None:
        self._device = device
        self._counts = torch.zeros((0, vocabulary), dtype=torch.int32, device=device)
        """How often each token occurred in an answer [rows, vocabulary]."""
        self._lengths = torch.zeros(0, dtype=torch.int64, device=device)
        """Tokens of each answer so far [rows]."""
        self._rows: dict[Any, int] = {}
        """The row of each request that has one."""
        self._requests: list[Any] = []
        self._terms: _Terms | None = None

    def start(self, requests: Sequence[Any]) -> None:
        """Count anew for requests that are about to be prefilled: a request that was retracted has output already."""
        # A request that ended or was retracted holds no KV cache any more.
        begun = set(requests)
        self._rows = {request: row for request, row in self._rows.items() if request.kv.holds_kv and request not in begun}
        self._requests, self._terms = [], None
        penalized = [request for request in requests if _is_penalized(request.sampling_params)]
        if not penalized:
            return
        taken = set(self._rows.values())
        free = [row for row in range(len(taken) + len(penalized)) if row not in taken]
        self._rows.update(zip(penalized, free[: len(penalized)], strict=True))
        self._grow(max(self._rows.values()) + 1)
        rows = [self._rows[request] for request in penalized]
        index = self._tensor(rows)
        self._counts[index] = 0
        self._lengths[index] = self._tensor([len(request.output_ids) for request in penalized])
        tokens = [(row, token) for row, request in zip(rows, penalized, strict=True) for token in request.output_ids]
        if tokens:
            where, which = self._tensor(tokens).T
            self._counts.index_put_((where, which), torch.ones_like(which, dtype=torch.int32), accumulate=True)

    def of_prefill(self, requests: Sequence[Any]) -> tuple[Tensor, Tensor] | None:
        """What to add to the logits of each request's next token, and what to scale them by then; both [batch, vocabulary].

        None if no request has a penalty.
        """
        terms = self._terms_of(requests)
        if terms is None:
            return None
        counts = self._counts[terms.rows]
        added = -_subtracted(counts, terms)
        self._keep_from_ending(added[:, None], terms)
        shape = (len(requests), counts.shape[1])
        return (
            torch.zeros(shape, device=self._device).index_copy_(0, terms.places, added),
            torch.ones(shape, device=self._device).index_copy_(0, terms.places, _divisors(counts, terms)),
        )

    def apply(self, logits: Tensor, requests: Sequence[Any], chains: Tensor) -> None:
        """Penalize the logits of a verification, in place.

        logits [batch * nodes, vocabulary]; chains [batch, nodes] hold the last token of each answer, which is counted
        already, and the drafted ones. The logits of a node are for the token after it.
        """
        terms = self._terms_of(requests)
        if terms is None:
            return
        nodes = chains.shape[1]
        whole = logits.view(len(requests), nodes, -1)
        mine = whole if len(terms.places) == len(requests) else whole[terms.places]
        if terms.adds or terms.scales:
            counts = self._counts[terms.rows]
            drafted = chains[terms.places, 1:].long()
            # A drafted token counts at the nodes from its own on; [m, nodes, drafted].
            index = drafted[:, None].expand(-1, nodes, -1)
            same = (drafted[:, :, None] == drafted[:, None]).int().cumsum(1)
            occurred = counts.gather(1, drafted)[:, None] + torch.nn.functional.pad(same, (0, 0, 1, 0))
            special = mine.gather(2, index)
            _penalize(special, occurred, terms)
            _penalize(mine, counts[:, None], terms)
            mine.scatter_(2, index, special)
        self._keep_from_ending(mine, terms)
        if mine is not whole:
            whole[terms.places] = mine

    def count(self, requests: Sequence[Any], tokens: Tensor, accepted: Tensor | None = None) -> None:
        """Count the tokens [batch, width] that requests were given, of which the first `accepted` [batch] hold (all if None)."""
        terms = self._terms_of(requests)
        if terms is None:
            return
        new = tokens[terms.places].long()
        kept = torch.ones_like(new, dtype=torch.int32)
        if accepted is not None:
            kept = (torch.arange(new.shape[1], device=self._device) < accepted[terms.places][:, None]).int()
        self._counts.index_put_((terms.rows[:, None].expand_as(new), new), kept, accumulate=True)
        self._lengths.index_add_(0, terms.rows, kept.sum(1))

    def _keep_from_ending(self, logits: Tensor, terms: _Terms) -> None:
        """Rule out, at the nodes of logits [m, nodes, vocabulary], to end an answer that is too short there."""
        if not terms.stays:
            return
        nodes = logits.shape[1]
        length = self._lengths[terms.rows][:, None] + torch.arange(nodes, device=self._device)
        index = terms.stops[:, None].expand(-1, nodes, -1)
        short = (length < terms.min_tokens)[:, :, None]
        logits.scatter_(2, index, logits.gather(2, index).masked_fill(short, -torch.inf))

    def _terms_of(self, requests: Sequence[Any]) -> _Terms | None:
        if self._rows and requests != self._requests:
            self._requests, self._terms = list(requests), self._gather(requests)
        return self._terms if self._rows else None

    def _gather(self, requests: Sequence[Any]) -> _Terms | None:
        places = [i for i, request in enumerate(requests) if request in self._rows]
        if not places:
            return None
        mine = [requests[i] for i in places]
        params = [request.sampling_params for request in mine]
        stops = [_stops(request) or [0] for request in mine]
        most = max(map(len, stops))
        return _Terms(
            places=self._tensor(places),
            rows=self._tensor([self._rows[request] for request in mine]),
            frequency=self._tensor([[p.frequency_penalty] for p in params], torch.float32),
            presence=self._tensor([[p.presence_penalty] for p in params], torch.float32),
            repetition=self._tensor([[p.repetition_penalty] for p in params], torch.float32),
            min_tokens=self._tensor(
                [[p.min_new_tokens if _stops(request) else 0] for p, request in zip(params, mine, strict=True)]
            ),
            stops=self._tensor([tokens + tokens[:1] * (most - len(tokens)) for tokens in stops]),
            adds=any(p.frequency_penalty or p.presence_penalty for p in params),
            scales=any(p.repetition_penalty != 1 for p in params),
            stays=any(p.min_new_tokens for p in params),
        )

    def _grow(self, rows: int) -> None:
        """Have at least so many rows."""
        if missing := max(0, rows - len(self._lengths)):
            missing = max(missing, len(self._lengths))
            self._counts = torch.cat([self._counts, self._counts.new_zeros((missing, self._counts.shape[1]))])
            self._lengths = torch.cat([self._lengths, self._lengths.new_zeros(missing)])

    def _tensor(self, values: Any, dtype: torch.dtype = torch.int64) -> Tensor:
        """On the device, without waiting for what runs there."""
        host = torch.tensor(values, dtype=dtype)
        return host if self._device == "cpu" else host.pin_memory().to(self._device, non_blocking=True)


def leave_out_penalizers(original: Any, orchestrator: Any, vocab_size: int, batch: Any, penalizers: Any) -> None:
    """Leave penalties to `Penalties`: SGLang's own penalizers know nothing of runs."""
    original(orchestrator, vocab_size, batch, set())


def _is_penalized(params: Any) -> bool:
    return bool(params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1 or params.min_new_tokens)


def _stops(request: Any) -> list[int]:
    """Tokens that end an answer of the request, as SGLang has them."""
    tokens = {*(request.sampling_params.stop_token_ids or ()), *(request.eos_token_ids or ())}
    tokens |= {request.tokenizer.eos_token_id, *(request.tokenizer.additional_stop_token_ids or ())}
    return sorted(token for token in tokens if token is not None)


def _subtracted(counts: Tensor, terms: _Terms) -> Tensor:
    """What frequency and presence penalties take from logits, for counts [m, ...]."""
    frequency, presence = (of.view(-1, *[1] * (counts.dim() - 1)) for of in (terms.frequency, terms.presence))
    return counts * frequency + (counts > 0) * presence


def _divisors(counts: Tensor, terms: _Terms) -> Tensor:
    """What the repetition penalty divides logits above 0 by, and multiplies those below by."""
    repetition = terms.repetition.view(-1, *[1] * (counts.dim() - 1))
    return torch.where(counts > 0, repetition, 1.0)


def _penalize(logits: Tensor, counts: Tensor, terms: _Terms) -> None:
    """Penalize logits [m, ...] in place, for tokens that occurred so often: OpenAI's formula, and Keskar et al. 2019's."""
    if terms.adds:
        logits -= _subtracted(counts, terms)
    if terms.scales:
        divisors = _divisors(counts, terms)
        logits.copy_(torch.where(logits < 0, logits * divisors, logits / divisors))
