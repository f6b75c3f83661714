"""One real engine, driven without Ray, and what its tests ask of it: on the CPU, or on a GPU if SPECFLEET_TEST_DEVICE is cuda."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import Tokenizer

from cluster.messages.directive import DepthTable, Directive
from cluster.messages.report import EngineReport
from cluster.messages.spec import EngineSpec
from workers import startup_profile, tiny
from workers.directed_engine import DirectedEngine
from workers.sglang_patch import cpu
from workers.sglang_patch.engine import SGLangEngine
from workers.shared_counters import SharedCounters

T = TypeVar("T")
PROMPTS = Path(__file__).parents[1] / "data" / "prompts.jsonl"


@dataclass
class Trail:
    """One request: its tokens, and how many there were after each step and when (a step of a stream is a chunk)."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    retractions: int = 0

    def first_drafted(self, after: float) -> float | None:
        """When a step first yielded more than one token, after a time."""
        steps = zip(self.times[1:], self.counts, self.counts[1:], strict=False)
        return next((at for at, before, now in steps if at > after and now > before + 1), None)

    def tokens_at(self, time: float) -> int:
        return self.counts[bisect_left(self.times, time) - 1]

    def accept_length(self, begin: int, steps: int) -> float:
        """Mean tokens of a step, over `steps` steps from where there were `begin` tokens."""
        first = self.counts.index(begin)
        after = self.counts[first : first + steps + 1]
        assert len(after) == steps + 1, f"only {len(after) - 1} steps after token {begin}"
        return (after[-1] - begin) / steps


class Bench:
    """An engine and the loop that all its coroutines run in."""

    def __init__(self, spec: EngineSpec) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.face = SGLangEngine()
        self.face.start(spec, startup_profile.known(spec))
        self.engine = DirectedEngine(spec, self.face)
        self._tokenizer = Tokenizer.from_file(str(tiny.TARGET / "tokenizer.json"))
        self._sequence = 0
        self.run(self.engine.prove_patch())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 300))

    def prompts(self, count: int) -> list[list[int]]:
        """Held-out prompts, as tokens."""
        lines = PROMPTS.read_text().splitlines()[:count]
        return [self._tokenizer.encode(json.loads(line)["prompt"]).ids for line in lines]

    async def depth(self, depth: int) -> EngineReport:
        """Put one depth in force at every batch size."""
        self._sequence += 1
        table = DepthTable(depth_by_batch={1: depth})
        return await self.engine.exchange(Directive(incarnation=1, sequence=self._sequence, table=table, lease_s=3600))

    def report(self) -> EngineReport:
        return self.run(self.engine.report(accepted=True))

    def counters(self) -> SharedCounters:
        return self.run(self.engine.counters())

    async def generate(self, prompt: list[int], tokens: int, seen: Callable[[int], None] = lambda _: None) -> Trail:
        """Stream a greedy answer; `seen` is told how many tokens there are."""
        trail = Trail(prompt)
        async for answer in self.face.stream(prompt, tokens):
            trail.tokens = answer.tokens
            trail.counts.append(len(trail.tokens))
            trail.times.append(time.monotonic())
            trail.retractions = answer.retractions
            seen(len(trail.tokens))
        return trail


DEVICE = os.environ.get("SPECFLEET_TEST_DEVICE", "cpu")
_GPU_ARGS = {
    "dtype": "bfloat16",
    "attention_backend": "triton",
    "mem_fraction_static": 0.3,
    "cuda_graph_max_bs_decode": 32,
    "max_running_requests": 32,
    "chunked_prefill_size": 512,
}


@contextmanager
def bench(environment: dict[str, str] | None = None, deterministic: bool = True, **fields: Any) -> Iterator[Bench]:
    """Start an engine on the tiny pair, and end it.

    On a GPU `deterministic` makes arithmetic independent of the shape of a batch, so that texts can be compared; it also
    seeds all sampling alike. On the CPU arithmetic is float32.
    """
    spec = EngineSpec(
        name="tiny-0",
        model="tiny",
        served_model_name="tiny",
        device=DEVICE,
        fallback=DepthTable(enabled=False),
        server_args={} if DEVICE == "cpu" else {**_GPU_ARGS, "enable_deterministic_inference": deterministic},
        **{"candidate_depths": (0, 1, 2, 3), **fields},
    )
    before = dict(os.environ)
    os.environ.update({**(cpu.environment() if DEVICE == "cpu" else {}), **(environment or {})})
    # This process is running already, so its path has to be set by hand.
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    try:
        running = Bench(spec)
        try:
            yield running
        finally:
            running.face.shutdown()
    finally:
        os.environ.clear()
        os.environ.update(before)
