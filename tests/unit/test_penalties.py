"""Penalties at each position of a run, against steps of one token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from workers.sglang_patch.penalties import Penalties

VOCABULARY, END = 40, 3


class Request:
    """The part of SGLang's request that penalties read."""

    def __init__(
        self, frequency: float = 0, presence: float = 0, repetition: float = 1, least: int = 0, output: Any = ()
    ) -> None:
        self.sampling_params = SimpleNamespace(
            frequency_penalty=frequency,
            presence_penalty=presence,
            repetition_penalty=repetition,
            min_new_tokens=least,
            stop_token_ids={7} if least else None,
        )
        self.eos_token_ids = {END}
        self.tokenizer = SimpleNamespace(eos_token_id=END, additional_stop_token_ids=None)
        self.kv = SimpleNamespace(holds_kv=True)
        self.output_ids = list(output)


KINDS: list[dict[str, Any]] = [
    {"frequency": 0.7},
    {"presence": -1.5},
    {"repetition": 1.4},
    {"repetition": 0.6, "frequency": -0.3, "presence": 0.2},
    {"least": 3},
    {"least": 9, "frequency": 2.0},
    {},
]


def expected(logits: Tensor, request: Request, output: list[int]) -> Tensor:
    """Logits [vocabulary] for the token after an output, penalized token by token."""
    params, penalized = request.sampling_params, logits.clone()
    for token in set(output):
        x = logits[token] - params.frequency_penalty * output.count(token) - params.presence_penalty
        penalized[token] = x * params.repetition_penalty if x < 0 else x / params.repetition_penalty
    if len(output) < params.min_new_tokens:
        penalized[list({END, *(params.stop_token_ids or ())})] = -torch.inf
    return penalized


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_each_position_of_a_run_has_the_penalties_after_the_tokens_before_it(nodes: int) -> None:
    torch.manual_seed(1)
    requests = [Request(**kind, output=[5, 5, 6]) for kind in KINDS]
    penalties = Penalties(VOCABULARY, "cpu")
    penalties.start(requests)
    outputs = [list(request.output_ids) for request in requests]
    for _ in range(4):
        # Few different tokens, so that they repeat in a run.
        chains = torch.randint(5, 8, (len(requests), nodes))
        chains[:, 0] = torch.tensor([output[-1] for output in outputs])
        logits = torch.randn(len(requests), nodes, VOCABULARY)
        found = logits.clone()
        penalties.apply(found.view(-1, VOCABULARY), requests, chains)
        for i, request in enumerate(requests):
            for node in range(nodes):
                wanted = expected(logits[i, node], request, outputs[i] + chains[i, 1 : node + 1].tolist())
                torch.testing.assert_close(found[i, node], wanted)
        accepted = torch.randint(1, nodes + 1, (len(requests),))
        tokens = torch.randint(0, VOCABULARY, (len(requests), nodes))
        penalties.count(requests, tokens, accepted)
        for output, new, count in zip(outputs, tokens.tolist(), accepted.tolist(), strict=True):
            output += new[:count]


def test_a_position_has_the_same_bits_verified_in_a_run_and_decoded_alone() -> None:
    torch.manual_seed(2)
    requests = [Request(**kind) for kind in KINDS]
    run, alone = Penalties(VOCABULARY, "cpu"), Penalties(VOCABULARY, "cpu")
    first = torch.full((len(requests), 1), 5)
    for penalties in (run, alone):
        penalties.start(requests)
        penalties.count(requests, first)
    chains = torch.cat([first, torch.randint(4, 7, (len(requests), 3))], 1)
    logits = torch.randn(len(requests), 4, VOCABULARY)
    verified = logits.clone()
    run.apply(verified.view(-1, VOCABULARY), requests, chains)
    for node in range(4):
        decoded = logits[:, node].clone()
        alone.apply(decoded, requests, chains[:, node : node + 1])
        assert torch.equal(verified[:, node], decoded)
        if node < 3:
            alone.count(requests, chains[:, node + 1 :][:, :1])


def test_a_request_that_was_retracted_keeps_its_penalties_at_its_next_prefill() -> None:
    request, other = Request(frequency=1.0, repetition=2.0, least=4, output=[9, 9, 8]), Request()
    penalties = Penalties(VOCABULARY, "cpu")
    penalties.start([other, request])
    added, scaled = penalties.of_prefill([other, request]) or pytest.fail("there are penalties")
    logits = torch.ones(VOCABULARY)
    found = logits + added[1]
    found = torch.where(found < 0, found * scaled[1], found / scaled[1])
    torch.testing.assert_close(found, expected(logits, request, request.output_ids))
    assert not added[0].any()
    assert torch.all(scaled[0] == 1)


def test_rows_of_requests_that_left_are_used_again() -> None:
    penalties = Penalties(VOCABULARY, "cpu")
    old = [Request(frequency=1.0, output=[4] * (i + 1)) for i in range(3)]
    penalties.start(old)
    old[1].kv.holds_kv = False
    new = Request(presence=1.0)
    penalties.start([new])
    logits = torch.zeros(3, VOCABULARY)
    penalties.apply(logits, [old[2], new, old[0]], torch.full((3, 1), 4))
    assert logits[:, 4].tolist() == [-3.0, 0.0, -1.0]


def test_a_batch_without_penalties_is_left_alone() -> None:
    penalties, requests = Penalties(VOCABULARY, "cpu"), [Request(), Request()]
    penalties.start(requests)
    assert penalties.of_prefill(requests) is None
    logits = torch.randn(4, VOCABULARY)
    found = logits.clone()
    penalties.apply(found, requests, torch.zeros((2, 2), dtype=torch.int64))
    assert torch.equal(found, logits)
