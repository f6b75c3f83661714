"""One fleet for the whole session, started as a user starts it: `serve run` on a YAML.

`SPECFLEET_TEST_CONFIG` names another YAML than tests/data/cpu-tiny.yaml, to run the same tests on a GPU. It must serve the tiny
pair: what the tests expect of its text and acceptance is its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray import serve

from cluster.messages.directive import DepthTable, Directive
from cluster.messages.report import EngineReport
from tests.fleet import ROOT, URL, complete, eventually, held_out_prompts, serving, status

CONFIG = Path(os.environ.get("SPECFLEET_TEST_CONFIG", ROOT / "tests" / "data" / "cpu-tiny.yaml"))


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    return held_out_prompts()


@pytest.fixture(scope="session")
def fleet() -> Iterator[str]:
    """URL of a running fleet."""
    with serving(CONFIG):
        yield URL


def deploy(config: Path) -> None:
    """`serve deploy` to the running fleet."""
    subprocess.run([sys.executable, "-m", "ray.serve.scripts", "deploy", str(config)], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture
async def client(fleet: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=fleet, timeout=120) as http:
        yield http


@pytest.fixture(scope="session")
def handle(fleet: str) -> Any:
    """Handle of the ingress, as another service would get it."""
    return serve.get_app_handle("specfleet")


@pytest.fixture(autouse=True)
async def auto_mode(client: httpx.AsyncClient) -> None:
    """Every test starts in mode auto, on a quiet fleet."""
    assert (await client.post("/fleet/mode", json={"mode": "auto"})).status_code == 200
    await eventually(client, lambda f: all(e.report and not e.report.load.running + e.report.load.waiting for e in f.engines))


@asynccontextmanager
async def busy(client: httpx.AsyncClient, prompts: list[str], clients: int) -> AsyncIterator[None]:
    """Keep as many clients asking, each for one long answer after the other."""

    async def ask(prompt: str) -> None:
        while True:
            await complete(client, prompt, max_tokens=1000, ignore_eos=True)

    tasks = [asyncio.create_task(ask(prompt)) for prompt in prompts[:clients]]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def leave(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[float, int]:
    """Ask, and go away while the engine answers. Returns the seconds until no engine had the request any more, and the tokens
    that it got in all. The engines themselves say so."""
    fleet = await status(client)
    actors = [ray.get_actor(e.actor, fleet.namespace) for e in fleet.engines]
    stale = Directive(incarnation=0, sequence=0, table=DepthTable(), lease_s=1)

    async def engines() -> tuple[int, int]:
        """Requests that they have, and tokens that they ever yielded."""
        reports: list[EngineReport] = await asyncio.gather(*(actor.exchange.remote(stale) for actor in actors))
        return sum(r.load.running + r.load.waiting for r in reports), sum(r.tokens for r in reports)

    _, before = await engines()
    asking = asyncio.create_task(client.post("/v1/completions", json=body))
    while not (await engines())[0]:
        await asyncio.sleep(0.01)
    await asyncio.sleep(random.uniform(0, 0.3))
    asking.cancel()
    left = time.monotonic()
    while (now := await engines())[0]:
        await asyncio.sleep(0.01)
    return time.monotonic() - left, now[1] - before


async def gather(limit: int, calls: list[Callable[[], Awaitable[str]]]) -> list[str]:
    """Run calls, `limit` at a time, and return their results in order."""
    slots = asyncio.Semaphore(limit)

    async def run(call: Callable[[], Awaitable[str]]) -> str:
        async with slots:
            return await call()

    return list(await asyncio.gather(*map(run, calls)))
