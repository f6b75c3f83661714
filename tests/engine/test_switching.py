"""Directives reach the real engine, take hold at once, and never change a word of its answers."""

from __future__ import annotations

import asyncio
from functools import partial

import httpx
import ray

from cluster.messages.directive import DepthTable, Directive
from cluster.messages.report import EngineReport
from cluster.messages.status import FleetStatus
from tests.engine.conftest import busy, gather
from tests.fleet import complete, eventually, status


async def texts(client: httpx.AsyncClient, prompts: list[str]) -> list[str]:
    return await gather(8, [partial(complete, client, prompt) for prompt in prompts])


async def set_mode(client: httpx.AsyncClient, mode: str) -> None:
    assert (await client.post("/fleet/mode", json={"mode": mode})).json() == {"mode": mode}


def enabled(fleet: FleetStatus, wanted: bool) -> bool:
    return all(e.report and e.report.applied.table.enabled is wanted for e in fleet.engines)


def steps_with_draft(report: EngineReport) -> int:
    return sum(n for depth, n in zip(report.steps.depth, report.steps.count, strict=True) if depth > 0)


def steps_without(report: EngineReport) -> int:
    return sum(n for depth, n in zip(report.steps.depth, report.steps.count, strict=True) if depth == 0)


async def test_greedy_text_is_the_same_on_off_and_flipped_in_mid_stream(client: httpx.AsyncClient, prompts: list[str]) -> None:
    prompts = prompts[:50]
    await set_mode(client, "on")
    on = await texts(client, prompts)
    await set_mode(client, "off")
    await eventually(client, lambda f: enabled(f, False))
    before = await status(client)
    off = await texts(client, prompts)
    after = await status(client)

    flips = 0

    async def flip() -> None:
        nonlocal flips
        while True:
            await set_mode(client, "on" if flips % 2 else "off")
            flips += 1
            await asyncio.sleep(0.1)

    flipping = asyncio.create_task(flip())
    flipped = await texts(client, prompts)
    flipping.cancel()
    end = await status(client)

    assert off == on
    assert flipped == on
    for e0, e1, e2 in zip(before.engines, after.engines, end.engines, strict=True):
        assert e0.report
        assert e1.report
        assert e2.report
        assert steps_with_draft(e1.report) == steps_with_draft(e0.report), "off still drafted"
        assert steps_with_draft(e2.report) > steps_with_draft(e1.report)
        assert steps_without(e2.report) > steps_without(e1.report)
        assert e2.report.switches - e1.report.switches >= 4
    print(f"\n50 prompts, {flips} flips of the mode while they ran")


async def test_off_and_on_take_hold_with_requests_in_flight(client: httpx.AsyncClient, prompts: list[str]) -> None:
    def running(fleet: FleetStatus) -> int:
        return sum(e.report.load.running for e in fleet.engines if e.report)

    def follows(fleet: FleetStatus, depth: int) -> bool:
        return all(e.report and (e.report.depth == depth or not e.report.load.running) for e in fleet.engines)

    async with busy(client, prompts, clients=4):
        for mode, depth in [("off", 0), ("on", 3), ("off", 0), ("on", 3)]:
            await eventually(client, lambda f: running(f) == 4)
            await set_mode(client, mode)
            taken = await eventually(client, lambda f, on=mode == "on": enabled(f, on))  # type: ignore[misc]
            # A report tells of the last step, and an engine makes none without a request, or while it reads a new prompt.
            told = await eventually(client, lambda f, d=depth: follows(f, d))  # type: ignore[misc]
            by_the_old = steps_with_draft if mode == "off" else steps_without
            for before, after in zip(taken.engines, told.engines, strict=True):
                assert before.report
                assert after.report
                assert by_the_old(after.report) - by_the_old(before.report) <= 1, (
                    "more steps by the old table than the one under way"
                )


async def test_stale_and_fenced_directives_are_ignored(client: httpx.AsyncClient) -> None:
    fleet = await status(client)
    engine = fleet.engines[0]
    assert engine.report
    actor = ray.get_actor(engine.actor, fleet.namespace)
    before = engine.report.applied
    for incarnation, sequence in [(fleet.controller, before.sequence), (fleet.controller, 0), (fleet.controller - 1, 10**9)]:
        stale = Directive(incarnation=incarnation, sequence=sequence, table=DepthTable(enabled=False), lease_s=60)
        report: EngineReport = await actor.exchange.remote(stale)
        assert not report.accepted
        assert report.applied.table == before.table
        assert report.applied.source == "controller"


async def test_depth_follows_the_batch(client: httpx.AsyncClient, prompts: list[str]) -> None:
    engines = (await status(client)).engines
    table = engines[0].report.applied.table  # type: ignore[union-attr]
    assert table.depth(16 // len(engines)) < table.depth(1), "the configuration's table must tell 16 clients from one"

    def follows(fleet: FleetStatus, clients: int) -> bool:
        """All clients are being answered, and each engine's depth is the table's for its share of them."""
        reports = [e.report for e in fleet.engines if e.report]
        return sum(r.load.running for r in reports) == clients and all(r.depth == table.depth(r.load.running) for r in reports)

    async with busy(client, prompts, clients=16):
        crowded = await eventually(client, lambda f: follows(f, 16))
        assert all(e.report and e.report.depth < table.depth(1) for e in crowded.engines)
    async with busy(client, prompts, clients=len(engines)):
        quiet = await eventually(client, lambda f: follows(f, len(engines)))
        assert all(e.report and e.report.depth == table.depth(1) for e in quiet.engines)
