"""Kills and stops everything there is, in turn, under live traffic.

`SPECFLEET_CHAOS_ROUNDS=5` does all of it that many times (`make chaos`); without it a short selection runs once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator

import httpx
import pytest
from ray import serve

from cluster.status import FleetStatus
from tests.chaos.faults import FAULTS, MARK, Whole, engine_processes, marked
from tests.chaos.traffic import ALLOWED, FORBIDDEN, Traffic
from tests.fleet import ROOT, URL, complete, held_out_prompts, serving, status

ROUNDS = int(os.environ.get("SPECFLEET_CHAOS_ROUNDS", "0"))
SHORT = ("kill -9 scheduler", "kill -9 controller", "SIGSTOP scheduler", "drop the lease")
CONFIG = ROOT / "tests" / "data" / "chaos.yaml"
GONE_WITHIN_S = 20 + 5 + 15  # the configuration's orphan_after_s and drain_s, and some for Serve to end the controller
MAX_TOKENS = 48


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    os.environ[MARK] = uuid.uuid4().hex
    try:
        with serving(CONFIG, tmp_path_factory.mktemp("chaos") / "serve.log"):
            yield
    finally:
        deadline = time.monotonic() + 15
        while (left := marked()) and time.monotonic() < deadline:
            time.sleep(0.5)
        del os.environ[MARK]
        for pid in left:  # a test that failed must not leave stopped processes behind
            os.kill(pid, signal.SIGKILL)
    assert not left, f"left behind by serve run: {left}"


async def until_whole(client: httpx.AsyncClient, whole: Whole, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    seen: object = None
    while time.monotonic() < deadline:
        try:
            fleet: FleetStatus = await asyncio.wait_for(status(client), 5)
            if whole(fleet):
                return
            seen = [(e.name, e.state, e.detail) for e in fleet.engines]
        except (httpx.HTTPError, asyncio.TimeoutError, ValueError) as error:  # no controller, no ingress
            seen = repr(error)[:200]
        await asyncio.sleep(0.1)
    pytest.fail(f"not whole again after {within_s:g} s: {seen}")


@pytest.mark.usefixtures("fleet")
async def test_whatever_dies_no_answer_is_wrong_and_no_process_is_left() -> None:
    faults = [f for f in FAULTS if f.name in SHORT] if not ROUNDS else list(FAULTS) * ROUNDS
    took: defaultdict[str, list[float]] = defaultdict(list)
    async with httpx.AsyncClient(base_url=URL, timeout=60) as client:
        prompts = held_out_prompts()[:20]
        expected = {prompt: await complete(client, prompt, max_tokens=MAX_TOKENS) for prompt in prompts}
        traffic = Traffic(URL, expected, MAX_TOKENS)
        try:
            async with traffic.flowing():
                await asyncio.sleep(5)
                for number, fault in enumerate(faults):
                    engines = (await status(client)).engines
                    traffic.fault = fault.name
                    began = time.monotonic()
                    whole = await fault.strike(engines[number // 2 % 2], client)
                    await until_whole(client, whole, fault.within_s)
                    took[fault.name].append(time.monotonic() - began)
                    print(f"{fault.name}: whole after {took[fault.name][-1]:.1f} s", flush=True)
                    await asyncio.sleep(2)
        finally:
            _print(traffic, took)
    for fault_name, outcomes in traffic.outcomes.items():
        assert not any(outcomes[bad] for bad in FORBIDDEN), f"{fault_name}: {outcomes}"
        if fault_name != "kill -9 ingress":
            assert not outcomes["connection"], f"{fault_name}: {outcomes}"
        assert outcomes["complete"], f"{fault_name}: nothing was answered"

    began = time.monotonic()
    assert len(engine_processes()) >= 8, "two engines of an actor, a guard, a scheduler and a detokenizer each"
    await asyncio.to_thread(serve.delete, "specfleet")
    while left := engine_processes():
        assert time.monotonic() < began + GONE_WITHIN_S, f"left behind: {left}"
        await asyncio.sleep(0.5)
    print(f"application deleted: no engine's process is left after {time.monotonic() - began:.1f} s")


def _print(traffic: Traffic, took: dict[str, list[float]]) -> None:
    columns = (*ALLOWED, *FORBIDDEN)
    print(f"\n| fault | times | {' | '.join(columns)} | whole after, median (most) |")
    print("|---" * (len(columns) + 3) + "|")
    for name, outcomes in traffic.outcomes.items():
        times = took.get(name, [])
        whole = f"{statistics.median(times):.1f} s ({max(times):.1f} s)" if times else ""
        print(f"| {name} | {len(times)} | {' | '.join(str(outcomes[column]) for column in columns)} | {whole} |")
    for outcome, said in traffic.examples.items():
        for text, times in said.most_common(4):
            print(f"{outcome}, {times} times: {text[:300]}")
