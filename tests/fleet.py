"""A fleet as a user starts it, `serve run` on a YAML, and what tests ask of it over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray

from cluster.status import FleetStatus

ROOT = Path(__file__).parents[1]
URL = "http://127.0.0.1:8000"
START_TIMEOUT_S = 400


def held_out_prompts() -> list[str]:
    """See tests/data/SOURCES.md."""
    lines = (ROOT / "tests" / "data" / "prompts.jsonl").read_text().splitlines()
    return [json.loads(line)["prompt"] for line in lines]


@contextmanager
def serving(config: Path, log: Path) -> Iterator[None]:
    """Run the fleet of a configuration until all its engines serve, join its Ray cluster, and end it at the end."""
    # Token authentication would write a token into the home folder of whoever runs the tests.
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    # Ray is nice to other processes; the figures here must not depend on who else is at work.
    environment["RAY_worker_niceness"] = "0"
    os.environ.update(environment)
    with log.open("w") as out:
        command = [str(ROOT / "configs" / "with-haproxy"), sys.executable, "-m", "ray.serve.scripts", "run", str(config)]
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
        yield
        ray.shutdown()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


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


async def status(client: httpx.AsyncClient) -> FleetStatus:
    return FleetStatus.model_validate_json((await client.get("/fleet")).content)


LEAST_POLLS = 20


async def eventually(client: httpx.AsyncClient, true: Callable[[FleetStatus], bool], within_s: float = 10.0) -> FleetStatus:
    """Poll the fleet until something is true of it. A machine that stood still for a while gets a few more polls."""
    deadline, polls = time.monotonic() + within_s, 0
    while True:
        polls += 1
        fleet = await status(client)
        if true(fleet):
            return fleet
        seen = [(e.state, e.report and (e.report.depth, e.report.load.running, e.report.load.waiting)) for e in fleet.engines]
        assert time.monotonic() < deadline or polls < LEAST_POLLS, (
            f"mode {fleet.mode}; (state, (depth, running, waiting)): {seen}"
        )
        await asyncio.sleep(0.02)


async def complete(client: httpx.AsyncClient, prompt: str, max_tokens: int = 64, **options: Any) -> str:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **options}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text
