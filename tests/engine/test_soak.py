"""Long traffic with all that clients do wrong: memory does not grow, and no request is left over.

`SPECFLEET_SOAK_S` says how long; `make soak` takes 20 minutes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
import ray

from tests.fleet import eventually, status

SECONDS = float(os.environ.get("SPECFLEET_SOAK_S", "120"))
WARM_UP = 0.4
"""Share of the time after which memory is first looked at."""

MOST_GROWTH = 0.02
CLIENTS = 8


async def test_soak(client: httpx.AsyncClient, prompts: list[str]) -> None:
    before = {e.actor: e.report and e.report.incarnation for e in (await status(client)).engines}
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    over = asyncio.Event()
    traffic = [asyncio.create_task(_client(client, prompts, random.Random(i), outcomes, over)) for i in range(CLIENTS)]
    traffic.append(asyncio.create_task(_switch(client, over)))
    processes = _processes()
    samples: list[dict[str, int]] = []
    while (passed := time.monotonic() - began) < SECONDS:
        if passed > WARM_UP * SECONDS:
            samples.append({name: _memory(process) for name, process in processes.items()})
        await asyncio.wait(traffic, timeout=2, return_when=asyncio.FIRST_EXCEPTION)
        for task in traffic:
            if task.done():
                task.result()
    # Not cancelled: a client that is cancelled while it closes its connection keeps it, and has not left for the server.
    over.set()
    await asyncio.gather(*traffic)
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


async def _client(
    client: httpx.AsyncClient, prompts: list[str], chance: random.Random, outcomes: Counter[str], over: asyncio.Event
) -> None:
    """One request after the other, of every kind."""
    for number in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
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


async def _switch(client: httpx.AsyncClient, over: asyncio.Event) -> None:
    for mode in itertools.takewhile(lambda _: not over.is_set(), itertools.cycle(["on", "off", "auto"])):
        await client.post("/fleet/mode", json={"mode": mode})
        await asyncio.sleep(0.5)


def _processes() -> dict[str, int]:
    """Those of ingress and controller, by name."""
    commands = {process.pid: " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])}
    names = {pid: re.match(r"ray::ServeReplica:specfleet:(Ingress|Controller)", command) for pid, command in commands.items()}
    found = {f"{name[1]} {pid}": pid for pid, name in names.items() if name}
    assert found, "no ingress was found among the processes"
    return found


def _memory(pid: int) -> int:
    """Anonymous memory of a process, in bytes. Read from a counter: for what a process has to itself (USS) the kernel would walk
    its page tables, which on a busy machine held up this loop, and the process, for up to 3 s."""
    (kib,) = re.findall(r"^RssAnon:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(kib) * 1024


def _growth(samples: list[dict[str, int]]) -> dict[str, tuple[float, float]]:
    """Memory after warm-up and at the end, each the mean of a quarter of the samples: one alone may catch a request."""
    quarter = max(1, len(samples) // 4)

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
