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


OFF_STEPS, FIRST_STEPS = 300, 20


def test_accept_length_is_back_at_once_by_the_engine_s_counters(b: Bench) -> None:
    """Like test_coming_back.py, but over all requests and by counters, which also holds where steps are too fast to tell
    apart in a stream."""
    prompts = b.prompts(8)

    async def first_steps() -> float:
        before = b.engine.counters()
        while True:
            now = b.engine.counters()
            drafted = int(now.reached[0] - before.reached[0])
            if drafted >= FIRST_STEPS * len(prompts):
                return 1 + float((now.accepted - before.accepted).sum()) / drafted
            await asyncio.sleep(0.001)

    async def compare() -> tuple[float, float]:
        await b.depth(0)
        await b.forget()
        ran = b.engine.report(accepted=True).requests
        seen = [0] * len(prompts)

        async def generate(i: int, prompt: list[int], tokens: int) -> list[int]:
            def count(n: int) -> None:
                seen[i] = n

            return (await b.generate(prompt, tokens, count)).tokens

        tasks = [asyncio.create_task(generate(i, prompt, OFF_STEPS + 220)) for i, prompt in enumerate(prompts)]
        while b.engine.report(accepted=True).requests < ran + OFF_STEPS * len(prompts):
            await asyncio.sleep(0.001)
        await b.depth(3)
        back = await first_steps()
        begin = list(seen)
        texts = await asyncio.gather(*tasks)
        await b.forget()
        twins = [asyncio.create_task(b.generate(p + t[:n], 150)) for p, t, n in zip(prompts, texts, begin, strict=True)]
        never_off = await first_steps()
        await asyncio.gather(*twins)
        return back, never_off

    back, never_off = b.run(compare())
    print(f"\nafter {OFF_STEPS} steps off: accept length {back:.2f}, {never_off:.2f} if never off: share {back / never_off:.3f}")
    assert back >= 0.97 * never_off


PROMPTS, SAMPLES = 10, 64


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
