"""After depth 0, drafts are as good as if the engine had never been off, whatever happened to a request meanwhile.

Each request's first steps at depth 3 are compared with those of a request that gets the same text as its prompt, on an empty
prefix cache, and so was never off. The same tests against SGLang's own way to save the work (leave the draft's KV cache
unwritten) show that they can fail.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.worker.bench import Bench, Trail, bench
from workers.sglang_patch.draft_modes import SKIPPED_EXTEND_ENV

OFF_STEPS = 300
FIRST_STEPS = 20
CASES = ["running before", "prefilled while off", "chunked prefill", "prefix from while off", "retracted and resumed"]
BAR = 0.97
# SGLang's own switch for tests: take a request out of the batch, memory or not, every so many forward passes.
RETRACTING = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "170"}


@dataclass(frozen=True)
class Comparison:
    """Accept lengths over the first steps at depth 3."""

    back: list[float]
    never_off: list[float]

    def __str__(self) -> str:
        n = max(1, len(self.back))
        lengths = f"accept length {sum(self.back) / n:.2f}, {sum(self.never_off) / n:.2f} if never off"
        return f"{len(self.back)} requests, {lengths}: share {self.share:.3f}"

    @property
    def share(self) -> float:
        return sum(self.back) / sum(self.never_off) if self.back else float("nan")


async def come_back(b: Bench) -> tuple[float, dict[str, list[Trail]]]:
    """Turn depth 3 off, let requests come, go and be retracted meanwhile, and turn it on again. Returns when that was."""
    prompts = b.prompts(26)
    await b.depth(3)
    # Fills the KV cache with what other requests leave in it.
    await asyncio.gather(*[b.generate(p, 300) for p in prompts[20:26]])
    await b.face.flush_prefix_cache()

    off, long_enough = asyncio.Event(), asyncio.Event()

    def seen(tokens: int) -> None:
        if tokens >= 20:
            off.set()
        if tokens >= OFF_STEPS + 40:
            long_enough.set()

    end = OFF_STEPS + 150
    before = [asyncio.create_task(b.generate(p, end, seen)) for p in prompts[:4]]
    await off.wait()
    last_on = await b.depth(0)
    finished = await asyncio.gather(*[b.generate(p, 40) for p in prompts[4:7]])
    prefilled = [asyncio.create_task(b.generate(p, end)) for p in prompts[7:10]]
    await asyncio.sleep(0.3)
    text = [token for prompt in prompts[10:20] for token in prompt]  # each request takes more of it than a chunk of prefill
    chunked = [asyncio.create_task(b.generate(text[start : start + 600], end)) for start in (0, 300)]
    cached = [asyncio.create_task(b.generate(trail.prompt + trail.tokens, end)) for trail in finished]
    await long_enough.wait()
    at, last_off = time.monotonic(), await b.depth(3)
    assert last_off.draft.passes <= last_on.draft.passes + 2, "the draft ran while it was off"
    assert last_off.requests - last_on.requests > 3 * OFF_STEPS
    tasks = {
        "running before": before,
        "prefilled while off": prefilled,
        "chunked prefill": chunked,
        "prefix from while off": cached,
    }
    return at, {name: list(await asyncio.gather(*some)) for name, some in tasks.items()}


async def compare(b: Bench) -> dict[str, Comparison]:
    at, trails = await come_back(b)
    everything = [trail for some in trails.values() for trail in some]
    drafted = min(time for trail in everything if (time := trail.first_drafted(at)) is not None)
    # The chunks of one step arrive together, compared with the time that a step takes.
    same_step_s = statistics.median(b - a for trail in everything for a, b in itertools.pairwise(trail.times)) / 3
    running = {name: [t for t in some if any(abs(drafted - x) < same_step_s for x in t.times)] for name, some in trails.items()}
    running[CASES[-1]] = [t for some in running.values() for t in some if t.retractions]
    await b.face.flush_prefix_cache()

    async def pair(trail: Trail) -> tuple[float, float]:
        begin = trail.tokens_at(drafted - same_step_s)
        twin = await b.generate(trail.prompt + trail.tokens[: begin - 1], 4 * FIRST_STEPS + 8)
        shared = min(len(twin.tokens), len(trail.tokens) - begin + 1)
        assert twin.tokens[:shared] == trail.tokens[begin - 1 :][:shared], "the text depends on the depth"
        return trail.accept_length(begin, FIRST_STEPS), twin.accept_length(1, FIRST_STEPS)

    found = {}
    for name, some in running.items():
        pairs = await asyncio.gather(*map(pair, some))
        found[name] = Comparison([back for back, _ in pairs], [never_off for _, never_off in pairs])
        print(f"\n{name}: {found[name]}")
    return found


@pytest.fixture(scope="module")
def kept() -> Iterator[dict[str, Comparison]]:
    with bench(RETRACTING) as b:
        yield b.run(compare(b))


@pytest.mark.parametrize("case", CASES)
def test_drafts_are_as_good_as_before(kept: dict[str, Comparison], case: str) -> None:
    assert kept[case].back, "no such request was running"
    assert kept[case].share >= BAR, str(kept[case])


def test_without_the_draft_s_kv_cache_they_are_not() -> None:
    with bench({**RETRACTING, SKIPPED_EXTEND_ENV: "1"}) as b:
        skipped = b.run(compare(b))
    everything = Comparison([x for c in skipped.values() for x in c.back], [x for c in skipped.values() for x in c.never_off])
    print(f"\nskipped, all requests: {everything}")
    assert everything.share < BAR
