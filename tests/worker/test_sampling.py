"""Temperature above 0: the distribution of tokens is the target's, with and without a draft."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Coroutine, Iterator
from math import exp
from typing import Any

import pytest
from scipy.stats import chi2_contingency

from tests.worker.bench import Bench, bench
from workers.warm_up import SAMPLING, TOKENS, warm_up

PROMPTS, SAMPLES = 10, 64
SAMPLED = {"temperature": 1.0}
WAYS: dict[str, dict[str, float]] = {
    "temperature": {},
    "top_p": {"top_p": 0.8},
    "top_k": {"top_k": 4},
    "min_p": {"min_p": 0.1},
    "penalties": {"frequency_penalty": 0.5, "presence_penalty": 1.0, "repetition_penalty": 1.3},
}
ANSWERS = int(os.environ.get("SPECFLEET_EXACT_SAMPLES", "500"))
"""Sampled at each depth, in all ways together; `make exact` samples 10,000."""
FALSE_ALARM = 1e-4
"""Chance that one comparison of two equal distributions fails."""


@pytest.fixture(scope="module")
def b() -> Iterator[Bench]:
    with bench(deterministic=False) as running:
        yield running


@pytest.mark.parametrize("depth", [0, 3])
def test_sampled_tokens_have_the_target_s_distribution(b: Bench, depth: int) -> None:
    """Compares second tokens of answers with the same first token, the most frequent one: a draft has no part in an earlier
    token. The target's distribution is known, as that of the first token for a prompt that ends with that first one."""

    async def sample(prompt: list[int]) -> tuple[Counter[int], dict[int, float]]:
        seconds: dict[int, Counter[int]] = {}
        for answer in await b.face.generate([prompt] * SAMPLES, 3, SAMPLED):
            first, second, _ = answer.tokens
            seconds.setdefault(first, Counter())[second] += 1
        first = max(seconds, key=lambda token: seconds[token].total())
        (answer,) = await b.face.generate([[*prompt, first]], 1, SAMPLED, top_logprobs=20)
        return seconds[first], {token: exp(log) for token, log in answer.top_logprobs[0].items()}

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


def test_text_sampled_in_each_way_is_distributed_alike_with_and_without_a_draft(b: Bench) -> None:
    """Of five tokens: the second and third together, and the fifth, for each way and prompt. A draft has a part in all three."""
    prompts = b.prompts(4)

    async def sample() -> list[tuple[str, int, list[int]]]:
        """Ten answers for each way and prompt, in mixed batches."""
        asked = prompts * 10
        generated = await asyncio.gather(*(b.face.generate(asked, 5, {**SAMPLED, **WAYS[way]}) for way in WAYS))
        return [
            (way, i % len(prompts), answer.tokens)
            for way, answers in zip(WAYS, generated, strict=True)
            for i, answer in enumerate(answers)
        ]

    def sampled_at(depth: int) -> dict[tuple[str, str], Counter[Any]]:
        b.run(b.depth(depth))
        found: dict[tuple[str, str], Counter[Any]] = {}
        while sum(counts.total() for counts in found.values()) < 2 * ANSWERS:
            for way, i, (_, second, third, _, fifth) in b.run(sample()):
                found.setdefault((way, "second and third"), Counter())[i, second, third] += 1
                found.setdefault((way, "fifth"), Counter())[i, fifth] += 1
        return found

    without, drafted = sampled_at(0), sampled_at(3)
    for what, counts in without.items():
        often = [cell for cell, count in (counts + drafted[what]).items() if count >= 10]
        table = [[of[cell] for cell in often] for of in (counts, drafted[what])]
        rest = [of.total() - sum(row) for of, row in zip((counts, drafted[what]), table, strict=True)]
        if sum(rest) >= 10:
            table = [[*row, left] for row, left in zip(table, rest, strict=True)]
        tested = chi2_contingency(table, correction=False)
        print(
            f"\n{what}: {counts.total()} answers, chi squared {tested.statistic:.1f} of {tested.dof}, p {tested.pvalue:.3f}",
            end="",
        )
        assert tested.pvalue > FALSE_ALARM, f"{what}: the distributions differ"


def test_warming_up_runs_sampled_steps_with_and_without_a_draft(b: Bench) -> None:
    """On a GPU this compiles what the first client would have to wait for. Afterwards the fallback, depth 0, is in force."""

    def steps_at_each_depth(work: Coroutine[Any, Any, Any]) -> list[int]:
        before = b.counters().step_count
        b.run(work)
        counts: list[int] = (b.counters().step_count - before).sum(axis=1).tolist()
        return counts

    async def generate() -> None:
        await b.face.generate(b.prompts(1), TOKENS)

    off, *between, deepest = steps_at_each_depth(warm_up(b.engine))
    assert off >= len(SAMPLING) * (TOKENS - 1)
    assert deepest
    assert not any(between)
    off, *drafting = steps_at_each_depth(generate())
    assert off
    assert not any(drafting)
    load = b.report().load
    assert not load.running + load.waiting
