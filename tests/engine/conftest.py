"""One fleet for the whole session, started as a user starts it: `serve run` on a YAML.

`SPECFLEET_TEST_CONFIG` names another YAML than tests/data/cpu-tiny.yaml, to run the same tests on a GPU. It must serve the tiny
pair: what the tests expect of its text and acceptance is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
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

from cluster.status import FleetStatus

ROOT = Path(__file__).parents[2]
CONFIG = Path(os.environ.get("SPECFLEET_TEST_CONFIG", ROOT / "tests" / "data" / "cpu-tiny.yaml"))
URL = "http://127.0.0.1:8000"
START_TIMEOUT_S = 400


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    """Held-out prompts; see tests/data/SOURCES.md."""
    lines = (ROOT / "tests" / "data" / "prompts.jsonl").read_text().splitlines()
    return [json.loads(line)["prompt"] for line in lines]


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a running fleet."""
    log = tmp_path_factory.mktemp("serve") / "serve.log"
    # Token authentication would write a token into the home folder of whoever runs the tests.
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    # Ray is nice to other processes; the figures here must not depend on who else is at work.
    environment["RAY_worker_niceness"] = "0"
    os.environ.update(environment)
    with log.open("w") as out:
        command = [sys.executable, "-m", "ray.serve.scripts", "run", str(CONFIG)]
        # A session of its own, and SIGINT not ignored, even if the tests run in the background of a shell.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    try:
        _wait_until_all_serve(process, log)
        ray.init(address="auto", log_to_driver=False)
        yield URL
        ray.shutdown()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def deploy(config: Path) -> None:
    """`serve deploy` to the running fleet."""
    subprocess.run([sys.executable, "-m", "ray.serve.scripts", "deploy", str(config)], cwd=ROOT, check=True, capture_output=True)


def _wait_until_all_serve(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    seen: object = "nothing"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            answer = httpx.get(f"{URL}/fleet", timeout=5)
            if answer.status_code == 200:
                engines = FleetStatus.model_validate_json(answer.content).engines
                seen = [(e.name, e.state, e.detail) for e in engines]
                if engines and all(e.state == "serving" for e in engines):
                    return
                if any(e.state == "failed" for e in engines):
                    break
        except httpx.HTTPError as error:
            seen = repr(error)
        time.sleep(1)
    pytest.fail(f"the fleet did not come up; last seen: {seen}\n{log.read_text()[-5000:]}")


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


async def status(client: httpx.AsyncClient) -> FleetStatus:
    return FleetStatus.model_validate_json((await client.get("/fleet")).content)


async def eventually(client: httpx.AsyncClient, true: Callable[[FleetStatus], bool], within_s: float = 10.0) -> FleetStatus:
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


async def gather(limit: int, calls: list[Callable[[], Awaitable[str]]]) -> list[str]:
    """Run calls, `limit` at a time, and return their results in order."""
    slots = asyncio.Semaphore(limit)

    async def run(call: Callable[[], Awaitable[str]]) -> str:
        async with slots:
            return await call()

    return list(await asyncio.gather(*map(run, calls)))
