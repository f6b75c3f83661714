"""Kills and stops everything there is, in turn, under live traffic.

`SPECFLEET_CHAOS_ROUNDS=5` does all of it that many times (`make chaos`); without it a short selection runs once.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict

import httpx
import pytest
from ray import serve

from tests.chaos.conftest import MAX_TOKENS, ROUNDS, until_whole
from tests.chaos.faults import FAULTS, engine_processes
from tests.chaos.traffic import ALLOWED, FORBIDDEN, Traffic
from tests.fleet import URL, complete, held_out_prompts, status

SHORT = ("kill -9 scheduler", "kill -9 controller", "SIGSTOP scheduler", "drop the lease")
GONE_WITHIN_S = 20 + 5 + 15  # the configuration's orphan_after_s and drain_s, and some for Serve to end the controller


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
                    await asyncio.sleep(2)
                    so_far = dict(traffic.outcomes[fault.name])
                    print(f"{fault.name}: whole after {took[fault.name][-1]:.1f} s; requests so far {so_far}", flush=True)
        finally:
            _print(traffic, took)
    for fault_name, outcomes in traffic.outcomes.items():
        assert not any(outcomes[bad] for bad in FORBIDDEN), f"{fault_name}: {outcomes}"
        if fault_name != "kill -9 ingress":
            assert not outcomes["broken off"], f"{fault_name}: {outcomes}"
        assert outcomes["complete"], f"{fault_name}: nothing was answered"

    began = time.monotonic()
    assert len(engine_processes()) >= 8, "two engines of an actor, a watchdog, a scheduler and a detokenizer each"
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
