"""A fleet that is resized, and whose configuration changes, under live traffic: nothing is lost, nothing is doubled.

Part of `make chaos`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cluster.messages.status import FleetStatus
from tests.chaos.conftest import CONFIG, MAX_TOKENS, ROUNDS, until_whole
from tests.chaos.faults import Whole
from tests.chaos.traffic import FORBIDDEN, Traffic
from tests.fleet import ROOT, URL, complete, held_out_prompts, status

pytestmark = pytest.mark.skipif(not ROUNDS, reason="part of `make chaos`")


async def deploy(folder: Path, args: dict[str, Any], user_config: dict[str, Any]) -> None:
    """`serve deploy` the configuration of the tests with changes."""
    config = yaml.safe_load(CONFIG.read_text())
    (application,) = config["applications"]
    application["args"].update(args)
    (controller,) = [d for d in application["deployments"] if d["name"] == "Controller"]
    controller["user_config"].update(user_config)
    path = folder / f"{time.time_ns()}.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "ray.serve.scripts", "deploy", str(path)]
    await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True, capture_output=True)


@asynccontextmanager
async def watched(client: httpx.AsyncClient) -> AsyncIterator[list[FleetStatus]]:
    """Every snapshot that there was meanwhile."""
    seen: list[FleetStatus] = []

    async def watch() -> None:
        while True:
            with suppress(httpx.HTTPError, ValueError):  # while the application is being replaced
                seen.append(await status(client))
            await asyncio.sleep(0.1)

    task = asyncio.create_task(watch())
    yield seen
    task.cancel()


def serve_only(count: int) -> Whole:
    return lambda fleet: len(fleet.engines) == len(fleet.serving) == count


@pytest.mark.usefixtures("fleet")
async def test_changes_lose_no_request_and_double_no_engine(tmp_path: Path) -> None:
    async with httpx.AsyncClient(base_url=URL, timeout=60) as client:
        prompts = held_out_prompts()[:20]
        expected = {prompt: await complete(client, prompt, max_tokens=MAX_TOKENS) for prompt in prompts}
        traffic = Traffic(URL, expected, MAX_TOKENS)
        first = {e.actor for e in (await status(client)).engines}
        try:
            async with traffic.flowing(), watched(client) as seen:
                traffic.fault = "down to one engine"
                await deploy(tmp_path, {}, {"engines": {"engine": 1}})
                await until_whole(client, serve_only(1), 60)
                assert [e.state for f in seen for e in f.engines if e.name == "engine-1"].count("draining")

                traffic.fault = "a group that there is not"
                await deploy(tmp_path, {}, {"engines": {"nope": 1}})
                await until_whole(client, lambda f: "no group nope" in f.refused, 60)
                assert serve_only(1)(await status(client))

                traffic.fault = "up to two engines"
                await deploy(tmp_path, {}, {"engines": {"engine": 2}})
                await until_whole(client, lambda f: serve_only(2)(f) and not f.refused, 120)
                second = {e.actor for e in (await status(client)).engines}
                assert len(second & first) == 1

                traffic.fault = "changed configuration"
                began, at = time.monotonic(), len(seen)
                await deploy(tmp_path, {"candidate_depths": [0, 3]}, {"depth_by_batch": {1: 3}})
                await until_whole(client, lambda f: serve_only(2)(f) and not second & {e.actor for e in f.engines}, 300)
                print(f"changed configuration: rolled out after {time.monotonic() - began:.1f} s")
                assert all(len({e.actor for e in f.engines if e.actor}) <= 2 for f in seen[at:]), "more engines than wanted"
                adopted = [f for f in seen[at:] if {e.actor for e in f.engines} & second]
                for controller in {f.controller for f in adopted}:
                    its = [f for f in adopted if f.controller == controller]
                    # One that has just started knows no reports yet.
                    known = next((i for i, f in enumerate(its) if all(e.report for e in f.engines)), len(its))
                    assert all(f.serving for f in its[known:]), "both engines were taken at once"
        finally:
            for name, outcomes in traffic.outcomes.items():
                print(name, dict(outcomes))
            for outcome, said in traffic.examples.items():
                print(outcome, said.most_common(4))
    for name, outcomes in traffic.outcomes.items():
        assert not any(outcomes[bad] for bad in FORBIDDEN), f"{name}: {outcomes}"
        if name != "changed configuration":  # for which Serve replaces the ingress too
            assert outcomes.keys() == {"complete"}, f"{name}: {outcomes}"
