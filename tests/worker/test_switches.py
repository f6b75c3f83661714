"""Switches between any two depths, in mid-stream; sampling; what an engine measures at its start."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from math import exp

import pytest

from tests.worker.bench import DEVICE, Bench, bench
from workers import startup_profile

DEPTHS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    cache = tmp_path_factory.mktemp("cache")
    with bench({"XDG_CACHE_HOME": str(cache)}, profile="startup") as running:
        yield running


def test_an_engine_measures_its_step_times_at_the_start(b: Bench) -> None:
    began = time.monotonic()
    b.run(b.engine.profile())
    took = time.monotonic() - began
    step_ms = b.engine.report(accepted=True).facts.step_ms
    print(f"\nmeasured in {took:.1f} s: {json.dumps(step_ms)}")
    assert took < startup_profile.WITHIN_S + 5
    assert set(step_ms) == set(DEPTHS)
    assert all(1 in row for row in step_ms.values())
    assert step_ms[3][1] > step_ms[0][1]
    kept = startup_profile.known(b.engine.spec)
    assert kept is not None
    assert kept.step_ms == step_ms, "the next engine would measure again"


def test_facts_tell_what_was_settled_at_the_start(b: Bench) -> None:
    facts = b.engine.report(accepted=True).facts
    assert facts.off == "K and V alone, put off"
    assert set(facts.state_gib) == set(DEPTHS)
    assert set(facts.graph_sizes) == set(DEPTHS)
    assert all(bool(sizes) == (DEVICE == "cuda") for sizes in facts.graph_sizes.values())


def test_text_is_the_same_whatever_the_depth_switches_to(b: Bench) -> None:
    """Every ordered pair of depths, one after the other, while requests of different ages run."""
    prompts = b.prompts(6)

    async def texts(switching: bool) -> list[list[int]]:
        await b.forget()
        done = asyncio.Event()

        async def switch() -> None:
            for depth in itertools.cycle([0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3]):
                await b.depth(depth)
                await asyncio.sleep(0.06 if DEVICE == "cpu" else 0.02)
                if done.is_set():
                    return

        switching_task = asyncio.create_task(switch()) if switching else None
        tasks = []
        for prompt in prompts:
            tasks.append(asyncio.create_task(b.generate(prompt, 250)))
            await asyncio.sleep(0.15)
        trails = await asyncio.gather(*tasks)
        done.set()
        if switching_task:
            await switching_task
        return [trail.tokens for trail in trails]

    async def both() -> tuple[list[list[int]], list[list[int]]]:
        await b.depth(0)
        return await texts(False), await texts(True)

    still, switched = b.run(both())
    assert switched == still
    rows = b.engine.counters().switch_steps
    pairs = Counter((int(a), int(z)) for a, z, batch, _ in rows.tolist() if batch)
    print(f"\n{b.engine.report(accepted=True).switches} switches: {dict(pairs)}")
    assert {(a, z) for a in DEPTHS for z in DEPTHS if a != z} <= set(pairs)


SAMPLES = 480


@pytest.mark.parametrize("depth", [0, 3])
def test_sampled_tokens_have_the_target_s_distribution(b: Bench, depth: int) -> None:
    """Of the second token given the most frequent first one: what is drafted first, and the probability that the target
    gives for it, as a prompt's first token, which no draft has a part in."""
    (prompt,) = b.prompts(1)
    generate = b.engine._engine.async_generate

    async def sample() -> tuple[int, Counter[int], dict[int, float]]:
        await b.depth(depth)
        seconds: dict[int, Counter[int]] = {}
        for _ in range(SAMPLES // 16):
            params = {"temperature": 1.0, "max_new_tokens": 3, "ignore_eos": True}
            for answer in await generate(input_ids=[prompt] * 16, sampling_params=[params] * 16):
                first, second, _ = answer["output_ids"]
                seconds.setdefault(first, Counter())[second] += 1
        first = max(seconds, key=lambda token: seconds[token].total())
        params = {"temperature": 1.0, "max_new_tokens": 1}
        answer = await generate(input_ids=[*prompt, first], sampling_params=params, return_logprob=True, top_logprobs_num=20)
        exact = {token: exp(log) for log, token, _ in answer["meta_info"]["output_top_logprobs"][0]}
        return first, seconds[first], exact

    _, found, exact = b.run(sample())
    n = found.total()
    # Pearson's statistic over tokens that are expected often enough, and all others together.
    cells = {token: p for token, p in exact.items() if n * p >= 5}
    rest = 1 - sum(cells.values())
    statistic = sum((found[token] - n * p) ** 2 / (n * p) for token, p in cells.items())
    if n * rest >= 5:
        statistic += (n - sum(found[token] for token in cells) - n * rest) ** 2 / (n * rest)
    freedom = len(cells) - (0 if n * rest >= 5 else 1)
    print(f"\ndepth {depth}: {n} samples, chi squared {statistic:.1f} with {freedom} degrees of freedom")
    assert freedom >= 2, "the target is too sure of this token to test anything"
    # Mean + 4 standard deviations: about one false alarm in a thousand runs for so few degrees of freedom.
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5 + 4
