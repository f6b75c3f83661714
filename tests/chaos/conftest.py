"""A fleet for each test, and whether all of it is run or a short selection: see test_chaos.py."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Iterator

import httpx
import pytest

from cluster.messages.status import FleetStatus
from tests.chaos.faults import MARK, Whole, marked
from tests.fleet import ROOT, serving, status

ROUNDS = int(os.environ.get("SPECFLEET_CHAOS_ROUNDS", "0"))
CONFIG = ROOT / "tests" / "data" / "chaos.yaml"
MAX_TOKENS = 48


@pytest.fixture
def fleet() -> Iterator[None]:
    os.environ[MARK] = uuid.uuid4().hex
    try:
        with serving(CONFIG):
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
        except (TimeoutError, httpx.HTTPError, ValueError) as error:  # no controller, no ingress
            seen = repr(error)[:200]
        await asyncio.sleep(0.1)
    pytest.fail(f"not whole again after {within_s:g} s: {seen}")
