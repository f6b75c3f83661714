"""One engine spread over two ranks: both switch in the same step."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator

import pytest

from cluster.protocol import RankState
from tests.worker.bench import Bench, bench

SWITCHES = int(os.environ.get("SPECFLEET_TEST_SWITCHES", "60"))


@pytest.fixture(scope="module")
def b() -> Iterator[Bench]:
    with bench(tensor_parallel=2, candidate_depths=(0, 1, 3)) as running:
        yield running


def test_ranks_switch_in_the_same_step(b: Bench) -> None:
    prompts = b.prompts(4)
    rng = random.Random(0)

    async def switch_under_load() -> list[tuple[RankState, ...]]:
        seen = []

        async def ask(prompt: list[int]) -> None:
            while True:
                await b.generate(prompt, 400)

        asking = [asyncio.create_task(ask(prompt)) for prompt in prompts]
        for _ in range(SWITCHES):
            report = await b.depth(rng.choice((0, 1, 3)))
            seen.append(report.ranks)
            await asyncio.sleep(0.05)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        return seen

    seen = b.run(switch_under_load())
    for one, two in seen:
        assert (one.revision, one.at_step) == (two.revision, two.at_step)
    one, two = b.engine.report(accepted=True).ranks
    print(f"\n{len(seen)} directives, {one.switches} switches in {one.at_step} steps")
    assert one.switches == two.switches > SWITCHES // 3


def test_text_is_that_of_one_rank(b: Bench) -> None:
    async def texts() -> list[list[int]]:
        await b.depth(3)
        return [trail.tokens for trail in await asyncio.gather(*[b.generate(p, 64) for p in b.prompts(8)])]

    two = b.run(texts())
    assert all(len(tokens) == 64 for tokens in two)
