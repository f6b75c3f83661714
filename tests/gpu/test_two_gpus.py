"""Two engines of one GPU each: each sees its own GPU alone, also the one that takes the place of a killed one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import httpx
import psutil
import pytest
import torch

from benchmarks.serving import NO_MULTICAST
from cluster.messages.status import FleetStatus
from tests.chaos.faults import pids
from tests.fleet import ROOT, URL, complete, eventually, held_out_prompts, serving, status

pytestmark = pytest.mark.skipif(torch.cuda.device_count() != 2, reason="needs a machine with two GPUs")
CONFIG = ROOT / "tests" / "data" / "h200x2-tiny.yaml"


@pytest.fixture(scope="module")
def fleet() -> Iterator[None]:
    with serving(CONFIG):
        yield


def environment_of(actor: str) -> dict[str, str]:
    """What an engine's processes are started with, by the one of them that sets no title: that overwrites it."""
    (parent,) = pids(actor)
    (watchdog,) = [p for p in psutil.Process(parent).children() if "watchdog" in " ".join(p.cmdline())]
    return watchdog.environ()


def gpus_by_name(fleet: FleetStatus) -> dict[str, str]:
    return {e.name: environment_of(e.actor)["CUDA_VISIBLE_DEVICES"] for e in fleet.engines}


def used_mib() -> list[int]:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return [int(line) for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


@pytest.mark.usefixtures("fleet")
async def test_engines_are_pinned_share_the_load_and_come_back_where_they_were() -> None:
    prompts = held_out_prompts()[:32]
    async with httpx.AsyncClient(base_url=URL, timeout=120) as client:
        before = await status(client)
        gpus = gpus_by_name(before)
        assert sorted(gpus.values()) == ["0", "1"]
        print(f"\nCUDA_VISIBLE_DEVICES: {gpus}; memory used by GPU: {used_mib()} MiB")
        assert min(used_mib()) > 20_000, "a GPU holds no engine"
        for engine in before.engines:
            seen = environment_of(engine.actor)
            assert {name: seen.get(name) for name in NO_MULTICAST} == NO_MULTICAST

        async def ask(prompt: str) -> str:
            return await complete(client, prompt, max_tokens=1000, ignore_eos=True)

        asking = [asyncio.create_task(ask(prompt)) for prompt in prompts]
        loaded = await eventually(client, lambda f: sum(e.report.load.running for e in f.engines if e.report) == len(prompts))
        running = {e.name: e.report.load.running for e in loaded.engines if e.report}
        print(f"32 requests at once: {running}")
        assert min(running.values()) >= 8
        await asyncio.gather(*asking)

        victim, other = before.engines
        os.kill(pids(victim.actor)[0], signal.SIGKILL)
        began, answered = time.monotonic(), 0
        while True:
            await complete(client, prompts[answered % len(prompts)], max_tokens=16)
            answered += 1
            after = await status(client)
            if len(after.serving) == 2 and victim.actor not in {e.actor for e in after.engines}:
                break
            assert time.monotonic() < began + 180, [(e.name, e.state, e.detail) for e in after.engines]
        print(f"one engine killed: back after {time.monotonic() - began:.1f} s, {answered} requests answered meanwhile")
        assert other.actor in {e.actor for e in after.engines}
        assert gpus_by_name(after) == gpus
        print(f"memory used by GPU: {used_mib()} MiB")
