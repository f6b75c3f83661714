"""Step times that an engine knows from its start: a profile, or its own measurement (`profile: startup`), kept for the next."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import statistics
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from cluster.messages.directive import DepthTable
from cluster.messages.profile import Profile, StepTimes
from cluster.messages.spec import EngineSpec
from workers.directed_engine import DirectedEngine
from workers.hardware import hardware

_LOG = logging.getLogger(__name__)

STARTUP = "startup"
WITHIN_S = 20.0
STEPS, WINDOWS = 4, 3  # timed steps of a window, and windows for each depth and batch size
WARM_STEPS = 3  # steps before them
PAIR_S = 2.0  # longest time for one depth and batch size
PROMPT, TOKENS = 32, 1000  # of a request; enough for all depths at their deepest


def known(spec: EngineSpec) -> StepTimes | None:
    """What is known before the engine starts.

    Raises:
        ValueError: if the profile does not exist.
    """
    if spec.profile is None:
        return None
    if spec.profile != STARTUP:
        return Profile.load(spec.profile)
    path = _cache_path(spec)
    return Profile.load(str(path)) if path.exists() else None


async def settle(engine: DirectedEngine) -> None:
    """Measure step times if the spec wants that and none are known. Takes up to 20 s."""
    if engine.spec.profile == STARTUP and not (await engine.facts()).step_ms:
        times = await measure(engine)
        if times is not None:
            engine.learn(times)


async def measure(engine: DirectedEngine) -> StepTimes | None:
    """Time each depth at batch sizes from the smallest to the largest, until the time is over; keep the result for next time.
    None if the engine is too slow for any.

    Contexts are short, so that much can be measured: the cost model learns from real traffic what longer ones add.
    """
    began = time.monotonic()
    step_ms: dict[int, dict[int, float]] = {}
    for batch in _spread((await engine.counters()).sizes.tolist()):
        async with _busy(engine, batch):
            for depth in engine.spec.candidate_depths:
                ms = await _step_ms(engine, depth, batch, until=min(began + WITHIN_S, time.monotonic() + PAIR_S))
                if ms is not None:
                    step_ms.setdefault(depth, {})[batch] = ms
        if time.monotonic() > began + WITHIN_S:
            break
    await engine.put_in_force(engine.spec.fallback)
    _LOG.info("%s measured its step times in %.1f s: %s", engine.spec.name, time.monotonic() - began, step_ms)
    if not step_ms:
        return None
    profile = Profile(
        step_ms=step_ms,
        about="Step times that an engine measured at its start.",
        hardware=hardware(engine.spec.device),
        software=f"SGLang {version('sglang')}",
        model=f"{engine.spec.model} with {engine.spec.draft_model or 'its own draft'}",
        method=f"median of {WINDOWS} means over {STEPS} steps, prompts of {PROMPT} tokens",
        measured=date.today().isoformat(),
    )
    path = _cache_path(engine.spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{uuid.uuid4().hex}")
    draft.write_text(profile.model_dump_json(indent=1))
    draft.rename(path)
    return profile


def _spread(sizes: list[int]) -> list[int]:
    """A few of the batch sizes: each four times the one before, and the largest."""
    chosen: list[int] = []
    for size in sorted(sizes):
        if not chosen or size >= 4 * chosen[-1] or size == max(sizes):
            chosen.append(size)
    return chosen


@asynccontextmanager
async def _busy(engine: DirectedEngine, batch: int) -> AsyncIterator[None]:
    """Keep `batch` requests running."""
    # The tokens mean nothing. All prompts differ, so that none is found in the prefix cache.
    prompts = [[2 + (31 * i + 7 * j) % 200 for j in range(PROMPT)] for i in range(batch)]
    running = engine.face.generate(prompts, TOKENS)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _step_ms(engine: DirectedEngine, depth: int, batch: int, until: float) -> float | None:
    """Milliseconds of a step at one depth and batch size; None if there were too few in time."""
    await engine.put_in_force(DepthTable(depth_by_batch={1: depth}))
    size = (await engine.counters()).sizes.tolist().index(batch)

    async def after(steps: int) -> tuple[int, float] | None:
        first = int((await engine.counters()).timed_count[depth, size])
        while time.monotonic() < until:
            now = await engine.counters()
            if now.timed_count[depth, size] >= first + steps:
                return int(now.timed_count[depth, size]), float(now.seconds[depth, size])
            await asyncio.sleep(0.005)
        return None

    marks = [await after(WARM_STEPS), *[await after(STEPS) for _ in range(WINDOWS)]]
    known = [mark for mark in marks if mark is not None]
    if len(known) < len(marks):
        return None
    # The median, because a kernel may have been compiled in one of them.
    return statistics.median(1e3 * (s1 - s0) / (n1 - n0) for (n0, s0), (n1, s1) in pairwise(known))


def _cache_path(spec: EngineSpec) -> Path:
    """Where the measurement of engines of this model, hardware and SGLang version is kept on this node."""
    what = {
        **spec.model_dump(include={"model", "draft_model", "device", "tensor_parallel", "candidate_depths", "server_args"}),
        "hardware": hardware(spec.device),
        "sglang": version("sglang"),
    }
    digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "specfleet" / f"{digest}.json"
