"""Malformed and hostile bodies: each gets an answer, none gets a 5xx, and no engine ends.

`SPECFLEET_FUZZ_BODIES` is the number of mutated bodies. A fifth as many are made from the schema of each route, right ones and
wrong ones. `make fuzz` sends 5,000 mutated ones, and about 10,000 bodies in all.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from tests.engine.hostile import Hostile
from tests.fleet import complete, status

BODIES = int(os.environ.get("SPECFLEET_FUZZ_BODIES", "200"))
SEED = int(os.environ.get("SPECFLEET_FUZZ_SEED", "1"))
AT_ONCE = 8


@pytest.fixture
async def unharmed(client: httpx.AsyncClient) -> Any:
    """Checks that the engines are the same ones afterwards, and answer."""
    before = {e.actor: e.report and e.report.incarnation for e in (await status(client)).engines}
    yield
    for prompt in ("import os\n", "def main():", "class A:"):
        await complete(client, prompt, max_tokens=4)
    after = await status(client)
    assert {e.actor: e.report and e.report.incarnation for e in after.engines} == before, "an engine was restarted"
    assert [e.state for e in after.engines] == ["serving"] * len(before)


def outcome(answer: httpx.Response) -> str:
    """What came of a request. Fails on a 5xx and on an error that is not OpenAI's."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["message"]
        assert error["type"]
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.text.endswith("data: [DONE]\n\n"), answer.text[-500:]
    return str(answer.status_code)


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("temperature", [0, 0.7])
async def test_a_schema_that_no_text_fits_ends_its_request_alone(client: httpx.AsyncClient, temperature: float) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "endless", "schema": {"$ref": "#"}}}
    body = {"model": "tiny", "prompt": "def", "temperature": temperature, "response_format": schema}
    beside = asyncio.create_task(complete(client, "import os\n", max_tokens=200, ignore_eos=True))
    answers = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {400}
    assert "no text fits" in answers[0].json()["error"]["message"]
    streamed = await client.post("/v1/completions", json={**body, "stream": True})
    assert "no text fits" in streamed.text
    assert "[DONE]" not in streamed.text
    assert await beside


@pytest.mark.usefixtures("unharmed")
async def test_hostile_bodies(client: httpx.AsyncClient) -> None:
    supply = Hostile(SEED)
    left = BODIES
    seen: Counter[str] = Counter()
    failures: list[str] = []
    began = time.monotonic()

    async def send() -> None:
        nonlocal left
        while left:
            left -= 1
            route, body = supply.next()
            try:
                seen[outcome(await client.post(route, content=body))] += 1
            except Exception as error:
                failures.append(f"{error!r}\nfor {route} {body[:2000]!r}")

    await asyncio.gather(*(send() for _ in range(AT_ONCE)))
    print(f"\n{BODIES} hostile bodies in {time.monotonic() - began:.0f} s, by status: {dict(sorted(seen.items()))}")
    assert not failures, "\n\n".join(failures[:20])


@pytest.mark.usefixtures("unharmed")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/fleet/mode"])
async def test_bodies_by_our_own_openapi(client: httpx.AsyncClient, path: str) -> None:
    document = (await client.get("/openapi.json")).json()
    operation = schemathesis.openapi.from_dict(document)[path]["POST"]
    seen: Counter[str] = Counter()

    def send(http: httpx.Client, mode: GenerationMode) -> None:
        @seed(SEED)
        @settings(
            max_examples=BODIES // 5,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def sent(case: schemathesis.Case) -> None:
            body = case.body
            if isinstance(body, dict) and path.startswith("/v1"):
                body = {**body, "max_tokens": 2, "max_completion_tokens": 2} if "messages" in body else {**body, "max_tokens": 2}
            content = body if isinstance(body, bytes) else json.dumps(body, default=str).encode()
            seen[f"{mode.value} {outcome(http.post(path, content=content))}"] += 1

        sent()

    def run() -> None:
        with httpx.Client(base_url=client.base_url, timeout=120) as http:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                send(http, mode)

    await asyncio.to_thread(run)
    print(f"\n{path}, bodies by its schema: {dict(sorted(seen.items()))}")
