"""How fast a running fleet follows a directive, and lets go of a request."""

from __future__ import annotations

from typing import Any

import httpx

from tests.engine.conftest import busy, leave
from tests.engine.test_requests import LONG
from tests.engine.test_switching import enabled
from tests.fleet import eventually


async def test_a_directive_is_in_force_within_250_ms(client: httpx.AsyncClient, handle: Any, prompts: list[str]) -> None:
    """From sending a new table to reading back that the engine follows it."""

    async def measure(times: int) -> list[float]:
        took = []
        for i in range(times):
            await handle.set_mode.remote("on" if i % 2 else "off")
            fleet = await eventually(client, lambda f, on=bool(i % 2): enabled(f, on))  # type: ignore[misc]
            took += [e.in_force_s for e in fleet.engines if e.in_force_s]
        return sorted(took)

    idle = await measure(25)
    async with busy(client, prompts, clients=8):
        await eventually(client, lambda f: all(e.report and e.report.load.running for e in f.engines))
        loaded = await measure(25)
    for name, took in [("idle", idle), ("8 requests", loaded)]:
        median, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        print(f"\nsent to in force, {name}, {len(took)} directives: median {median * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")
        assert p99 < 0.250, name


async def test_a_client_that_goes_away_is_aborted_within_a_second(client: httpx.AsyncClient, prompts: list[str]) -> None:
    for stream in (True, False):
        took = sorted([(await leave(client, {**LONG, "prompt": prompt, "stream": stream}))[0] for prompt in prompts[:12]])
        kind = "streaming" if stream else "plain"
        median, longest = took[len(took) // 2], took[-1]
        print(f"\n{kind} client gone to aborted, {len(took)} times: median {median:.2f} s, longest {longest:.2f} s")
        assert longest < 1
