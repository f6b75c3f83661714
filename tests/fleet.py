"""A fleet as a user starts it, `serve run` on a YAML, and what tests ask of it over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import ray

from benchmarks.serving import RAY_ENVIRONMENT, ROOT, fleet, url
from cluster.messages.status import FleetStatus

URL = url("")


def held_out_prompts() -> list[str]:
    """See tests/data/SOURCES.md."""
    lines = (ROOT / "tests" / "data" / "prompts.jsonl").read_text().splitlines()
    return [json.loads(line)["prompt"] for line in lines]


@contextmanager
def serving(config: Path) -> Iterator[None]:
    """Run the fleet of a configuration until all its engines serve, join its Ray cluster, and end it at the end."""
    os.environ.update(RAY_ENVIRONMENT)
    with fleet(config):
        ray.init(address="auto", log_to_driver=False)
        yield
        ray.shutdown()


async def status(client: httpx.AsyncClient) -> FleetStatus:
    return FleetStatus.model_validate_json((await client.get("/fleet")).content)


async def eventually(client: httpx.AsyncClient, true: Callable[[FleetStatus], bool], within_s: float = 120.0) -> FleetStatus:
    """Poll the fleet until something is true of it."""
    deadline = time.monotonic() + within_s
    while True:
        fleet = await status(client)
        if true(fleet):
            return fleet
        seen = [(e.state, e.report and (e.report.depth, e.report.load.running, e.report.load.waiting)) for e in fleet.engines]
        assert time.monotonic() < deadline, f"mode {fleet.mode}; (state, (depth, running, waiting)): {seen}"
        await asyncio.sleep(0.02)


async def complete(client: httpx.AsyncClient, prompt: str, max_tokens: int = 64, **options: Any) -> str:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **options}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text
