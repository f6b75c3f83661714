"""Switches between any two depths, in mid-stream; what an engine measures at its start."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.worker.bench import DEVICE, Bench, bench
from workers import startup_profile

DEPTHS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    cache = tmp_path_factory.mktemp("cache")
    with bench({"XDG_CACHE_HOME": str(cache)}, profile="startup") as running:
        yield running


def test_an_engine_measures_its_step_times_at_the_start(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # A slow machine gets the time that it needs for all depths.
    monkeypatch.setattr(startup_profile, "PAIR_S", 60.0)
    monkeypatch.setattr(startup_profile, "WITHIN_S", 200.0)
    b.run(startup_profile.settle(b.engine))
    step_ms = b.run(b.engine.facts()).step_ms
    print(f"\n{json.dumps(step_ms)}")
    assert set(step_ms) == set(DEPTHS)
    assert all(1 in row for row in step_ms.values())
    assert all(ms > 0 for row in step_ms.values() for ms in row.values())
    kept = startup_profile.known(b.engine.spec)
    assert kept is not None
    assert kept.step_ms == step_ms, "the next engine would measure again"


def test_facts_tell_what_was_settled_at_the_start(b: Bench) -> None:
    facts = b.run(b.engine.facts())
    assert facts.off == "K and V alone, put off"
    assert set(facts.state_gib) == set(DEPTHS)
    assert set(facts.graph_sizes) == set(DEPTHS)
    assert all(bool(sizes) == (DEVICE == "cuda") for sizes in facts.graph_sizes.values())


def test_text_is_the_same_whatever_the_depth_switches_to(b: Bench) -> None:
    """Every ordered pair of depths, one after the other, while requests of different ages run."""
    prompts = b.prompts(6)

    async def texts(switching: bool) -> list[list[int]]:
        await b.face.flush_prefix_cache()
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
    rows = b.counters().switch_steps
    pairs = Counter((int(a), int(z)) for a, z, batch, _ in rows.tolist() if batch)
    print(f"\n{b.report().switches} switches: {dict(pairs)}")
    assert {(a, z) for a in DEPTHS for z in DEPTHS if a != z} <= set(pairs)


OFF_STEPS, FIRST_STEPS = 300, 20


def test_accept_length_is_back_at_once_by_the_engine_s_counters(b: Bench) -> None:
    """Like test_coming_back.py, but over all requests and by counters, which also holds where steps are too fast to tell
    apart in a stream."""
    prompts = b.prompts(8)

    async def first_steps() -> float:
        before = await b.engine.counters()
        while True:
            now = await b.engine.counters()
            drafted = int(now.reached[0] - before.reached[0])
            if drafted >= FIRST_STEPS * len(prompts):
                return 1 + float((now.accepted - before.accepted).sum()) / drafted
            await asyncio.sleep(0.001)

    async def compare() -> tuple[float, float]:
        await b.depth(0)
        await b.face.flush_prefix_cache()
        ran = int((await b.engine.counters()).requests)
        seen = [0] * len(prompts)

        async def generate(i: int, prompt: list[int], tokens: int) -> list[int]:
            def count(n: int) -> None:
                seen[i] = n

            return (await b.generate(prompt, tokens, count)).tokens

        tasks = [asyncio.create_task(generate(i, prompt, OFF_STEPS + 220)) for i, prompt in enumerate(prompts)]
        while (await b.engine.counters()).requests < ran + OFF_STEPS * len(prompts):
            await asyncio.sleep(0.001)
        await b.depth(3)
        back = await first_steps()
        begin = list(seen)
        texts = await asyncio.gather(*tasks)
        await b.face.flush_prefix_cache()
        twins = [asyncio.create_task(b.generate(p + t[:n], 150)) for p, t, n in zip(prompts, texts, begin, strict=True)]
        never_off = await first_steps()
        await asyncio.gather(*twins)
        return back, never_off

    back, never_off = b.run(compare())
    print(f"\nafter {OFF_STEPS} steps off: accept length {back:.2f}, {never_off:.2f} if never off: share {back / never_off:.3f}")
    assert back >= 0.97 * never_off
