"""Long traffic with all that clients do wrong: memory stays, and nothing is left in hand.

`SPECFLEET_SOAK_S` says how long, and without it there is none; `make soak` takes 20 minutes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import time
from collections import Counter
from typing import Any

import httpx
import psutil
import pytest
import ray

from tests.fleet import eventually, status

SECONDS = float(os.environ.get("SPECFLEET_SOAK_S", "0"))
WARM_UP = 0.4
"""Share of the time after which memory is first looked at."""

MOST_GROWTH = 0.02
CLIENTS = 8


@pytest.mark.skipif(not SECONDS, reason="make soak runs it")
async def test_soak(client: httpx.AsyncClient, prompts: list[str]) -> None:
    before = {e.actor: e.report and e.report.incarnation for e in (await status(client)).engines}
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    traffic = [asyncio.create_task(_client(client, prompts, random.Random(i), outcomes)) for i in range(CLIENTS)]
    traffic.append(asyncio.create_task(_switch(client)))
    samples: list[dict[str, int]] = []
    while (passed := time.monotonic() - began) < SECONDS:
        if passed > WARM_UP * SECONDS:
            samples.append(_memory())
        await asyncio.wait(traffic, timeout=2, return_when=asyncio.FIRST_EXCEPTION)
        for task in traffic:
            if task.done():
                task.result()
    for task in traffic:
        task.cancel()
    await asyncio.gather(*traffic, return_exceptions=True)
    print(f"\n{SECONDS:.0f} s, {CLIENTS} clients: {dict(sorted(outcomes.items()))}")
    assert min(outcomes[kind] for kind in ("whole", "plain", "left", "too long", "late")) > 0
    assert not outcomes["failed"]

    await eventually(client, lambda f: all(e.report and not e.report.load.running + e.report.load.waiting for e in f.engines))
    await _nothing_in_hand(client)
    after = {e.actor: e.report and e.report.incarnation for e in (await status(client)).engines}
    assert after == before, "an engine was restarted"
    for process, (first, last) in _growth(samples).items():
        course = " ".join(f"{sample[process] / 2**20:.1f}" for sample in samples[:: max(1, len(samples) // 12)])
        print(f"{process}: {last / first - 1:+.1%} from after warm-up to the end, in MiB: {course}")
        assert last / first - 1 < MOST_GROWTH, process


async def _client(client: httpx.AsyncClient, prompts: list[str], chance: random.Random, outcomes: Counter[str]) -> None:
    """One request after the other, of every kind."""
    for number in itertools.count():
        body: dict[str, Any] = {"model": "tiny", "prompt": chance.choice(prompts), "max_tokens": chance.randrange(8, 128)}
        headers = {"X-Session-Id": f"{number % 50}"} if chance.random() < 0.5 else {}
        kind = chance.choices(["whole", "plain", "left", "too long", "late", "odd"], [5, 3, 3, 1, 1, 1])[0]
        if kind == "whole":
            answer = await client.post("/v1/completions", json={**body, "stream": True}, headers=headers)
            good = answer.status_code == 200 and answer.text.endswith("data: [DONE]\n\n")
        elif kind == "left":
            async with client.stream("POST", "/v1/completions", json={**body, "max_tokens": 1000, "stream": True}) as left:
                await anext(left.aiter_bytes())
            good = left.status_code == 200
        elif kind == "late":
            body = {**body, "max_tokens": 1000, "ignore_eos": True}
            answer = await client.post("/v1/completions", json=body, headers={"X-Request-Timeout": "0.2"})
            good = answer.status_code == 504
        else:
            changed = {"plain": {}, "too long": {"prompt": "word " * 5000}, "odd": {"temperature": "hot"}}[kind]
            answer = await client.post("/v1/completions", json={**body, **changed}, headers=headers)
            good = answer.status_code == (200 if kind == "plain" else 400)
        outcomes[kind if good else "failed"] += 1


async def _switch(client: httpx.AsyncClient) -> None:
    for mode in itertools.cycle(["on", "off", "auto"]):
        await client.post("/fleet/mode", json={"mode": mode})
        await asyncio.sleep(0.5)


def _memory() -> dict[str, int]:
    """Memory that each ingress and controller process has to itself, in bytes."""
    used = {}
    for process in psutil.process_iter(["cmdline", "pid"]):
        name = " ".join(process.info["cmdline"] or ())
        if found := re.match(r"ray::ServeReplica:specfleet:(Ingress|Controller)", name):
            used[f"{found[1]} {process.pid}"] = process.memory_full_info().uss
    return used


def _growth(samples: list[dict[str, int]]) -> dict[str, tuple[float, float]]:
    """Memory after warm-up and at the end, each the mean of a quarter of the samples: one alone may catch a request."""
    quarter = max(1, len(samples) // 4)
    assert samples[0], "no ingress was found among the processes"

    def mean(process: str, some: list[dict[str, int]]) -> float:
        return sum(sample[process] for sample in some) / len(some)

    return {process: (mean(process, samples[:quarter]), mean(process, samples[-quarter:])) for process in samples[0]}


async def _nothing_in_hand(client: httpx.AsyncClient, within_s: float = 60.0) -> None:
    """Wait until every ingress replica says so by its metrics, which Ray publishes every few seconds."""
    url = f"http://{ray.nodes()[0]['NodeManagerAddress']}:{ray.nodes()[0]['MetricsExportPort']}/metrics"
    deadline = time.monotonic() + within_s
    while True:
        text = (await client.get(url)).text
        counts = re.findall(r"^(ray_specfleet_ingress_(?:in_flight|waiting){.*}) (\S+)$", text, re.MULTILINE)
        if counts and not any(float(value) for _, value in counts):
            return
        assert time.monotonic() < deadline, counts
        await asyncio.sleep(1)
