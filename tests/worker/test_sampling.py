"""Temperature above 0: the distribution of tokens is the target's, with and without a draft."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import exp

import pytest

from tests.worker.bench import Bench, bench
from workers.warm_up import SAMPLING, TOKENS, warm_up

PROMPTS, SAMPLES = 10, 64


@pytest.fixture(scope="module")
def b() -> Iterator[Bench]:
    with bench(deterministic=False) as running:
        yield running


@pytest.mark.parametrize("depth", [0, 3])
def test_sampled_tokens_have_the_target_s_distribution(b: Bench, depth: int) -> None:
    """Of the second token of an answer, given its most frequent first one: it is the first that a draft has a part in. What
    the target gives for it is known, as the first token of a prompt that ends with that first one."""
    generate = b.engine._engine.async_generate

    async def sample(prompt: list[int]) -> tuple[Counter[int], dict[int, float]]:
        params = {"temperature": 1.0, "max_new_tokens": 3, "ignore_eos": True}
        seconds: dict[int, Counter[int]] = {}
        for answer in await generate(input_ids=[prompt] * SAMPLES, sampling_params=[params] * SAMPLES):
            first, second, _ = answer["output_ids"]
            seconds.setdefault(first, Counter())[second] += 1
        first = max(seconds, key=lambda token: seconds[token].total())
        params = {"temperature": 1.0, "max_new_tokens": 1}
        answer = await generate(input_ids=[*prompt, first], sampling_params=params, return_logprob=True, top_logprobs_num=20)
        return seconds[first], {token: exp(log) for log, token, _ in answer["meta_info"]["output_top_logprobs"][0]}

    async def all_samples() -> list[tuple[Counter[int], dict[int, float]]]:
        await b.depth(depth)
        return [await sample(prompt) for prompt in b.prompts(PROMPTS)]

    statistic, freedom = 0.0, 0
    for found, exact in b.run(all_samples()):
        # Pearson's, over the tokens that are expected often enough and all others together.
        n = found.total()
        cells = [(found[token], n * p) for token, p in exact.items() if n * p >= 5]
        cells.append((n - sum(seen for seen, _ in cells), n - sum(expected for _, expected in cells)))
        if len(cells) > 2 or cells[-1][1] >= 1:
            statistic += sum((seen - expected) ** 2 / max(expected, 0.5) for seen, expected in cells)
            freedom += len(cells) - 1
    print(f"\ndepth {depth}: chi squared {statistic:.1f} with {freedom} degrees of freedom")
    assert freedom >= 8, "the target is too sure of these tokens to test anything"
    # About one false alarm in a thousand runs.
    assert statistic < freedom + 3.5 * (2 * freedom) ** 0.5 + 4


def test_warming_up_runs_sampled_steps_with_and_without_a_draft(b: Bench) -> None:
    """On a GPU this compiles what the first client would have to wait for. Nothing of it stays in force."""
    before = b.engine.counters()
    b.run(warm_up(b.engine))
    ran = b.engine.counters().step_count - before.step_count
    deepest = max(b.engine.spec.candidate_depths)
    assert set(ran.sum(axis=1).nonzero()[0]) == {0, deepest}
    assert ran[0].sum() >= len(SAMPLING) * (TOKENS - 1)
    assert b.engine._in_force == b.engine.spec.fallback
    assert not b.engine.health.in_flight
