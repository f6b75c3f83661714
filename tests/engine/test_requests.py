"""Where requests go, how long they last, and what ends them, on the real engines behind two ingress replicas."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
import yaml

from cluster.messages.status import FleetStatus
from tests.engine.conftest import CONFIG, deploy, leave
from tests.fleet import complete, eventually, status

LONG: dict[str, Any] = {"model": "tiny", "prompt": "def main():", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}


@contextmanager
def deployed(**ingress: Any) -> Iterator[None]:
    """The fleet's own configuration with other fields of the ingress's deployment, while it runs."""
    config = yaml.safe_load(CONFIG.read_text())
    deployments = config["applications"][0]["deployments"]
    (deployment,) = [d for d in deployments if d["name"] == "Ingress"] or [{"name": "Ingress"}]
    config["applications"][0]["deployments"] = [d for d in deployments if d["name"] != "Ingress"] + [{**deployment, **ingress}]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ingress.yaml"
        path.write_text(yaml.safe_dump(config))
        deploy(path)
    try:
        yield
    finally:
        deploy(CONFIG)


async def until(
    client: httpx.AsyncClient, true: Callable[[httpx.Response], bool], path: str = "/v1/models", **options: Any
) -> None:
    """Ask until ten answers in a row fit: every replica has followed its new settings."""
    deadline, fitting = time.monotonic() + 60, 0
    while fitting < 10:
        answer = await client.get(path, **options)
        fitting = fitting + 1 if true(answer) else 0
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.05)


def idle(fleet: FleetStatus) -> bool:
    return all(e.report and not e.report.load.running + e.report.load.waiting for e in fleet.engines)


def tokens_of(fleet: FleetStatus) -> int:
    """Tokens that all engines ever yielded."""
    return sum(e.report.tokens for e in fleet.engines if e.report)


async def cached_share(client: httpx.AsyncClient, documents: list[str], header: Callable[[int], dict[str, str]]) -> float:
    """Share of prompt tokens from the cache when several ask about each document."""
    asked = [(i, document + f"\n# Question {question}\n") for question in range(3) for i, document in enumerate(documents)]
    prompt, cached = 0, 0
    for i, text in asked:
        body = {"model": "tiny", "prompt": text, "max_tokens": 2, "temperature": 0}
        usage = (await client.post("/v1/completions", json=body, headers=header(i))).json()["usage"]
        prompt += usage["prompt_tokens"]
        cached += (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)
    return cached / prompt


async def test_affinity_finds_what_an_engine_has_cached(client: httpx.AsyncClient, prompts: list[str]) -> None:
    if len((await status(client)).engines) < 2:
        pytest.skip("with one engine all requests go to it")

    def documents() -> list[str]:
        """Long enough for affinity by prefix, and new to every cache."""
        text = "\n".join(prompts)
        return [f"# {uuid.uuid4()}\n{text[at : at + 1500]}" for at in range(0, len(text) - 1500, 1500)]

    def session(name: str) -> dict[str, str]:
        return {"X-Session-Id": name}

    scattered = await cached_share(client, documents(), lambda _: session(uuid.uuid4().hex))
    by_prefix = await cached_share(client, documents(), lambda _: {})
    by_session = await cached_share(client, documents(), lambda i: session(f"session {i}"))
    print(f"\nprompt tokens from the cache: scattered {scattered:.0%}, by prefix {by_prefix:.0%}, by session {by_session:.0%}")
    assert min(by_prefix, by_session) > scattered + 0.1
    assert min(by_prefix, by_session) > 0.6


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_ends_a_request_everywhere(client: httpx.AsyncClient, stream: bool) -> None:
    before, began = tokens_of(await status(client)), time.monotonic()
    answer = await client.post("/v1/completions", json={**LONG, "stream": stream}, headers={"X-Request-Timeout": "0.7"})
    assert time.monotonic() - began >= 0.7
    if stream:
        assert answer.status_code == 200
        error = json.loads(answer.text.strip().split("\n\n")[-1].removeprefix("data: "))["error"]
        assert "[DONE]" not in answer.text
    else:
        assert answer.status_code == 504
        error = answer.json()["error"]
    assert error["code"] == "deadline_exceeded"
    after = tokens_of(await eventually(client, idle))
    assert after - before < LONG["max_tokens"], "the engine went on to the end of the answer"


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
async def test_a_wrong_timeout_is_refused(client: httpx.AsyncClient, value: str) -> None:
    answer = await client.post("/v1/completions", json=LONG, headers={"X-Request-Timeout": value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-Request-Timeout")


async def test_a_client_that_goes_away_is_aborted(client: httpx.AsyncClient, prompts: list[str]) -> None:
    for stream in (True, False):
        for prompt in prompts[:12]:
            _, tokens = await leave(client, {**LONG, "prompt": prompt, "stream": stream})
            assert tokens < LONG["max_tokens"], "the engine went on to the end of the answer"


async def test_a_request_that_ends_before_it_is_under_way_leaves_nothing(client: httpx.AsyncClient) -> None:
    """An engine can learn of a request's end before its scheduler has the request, or before it has the request itself."""

    async def give_up(number: int) -> None:
        body = {**LONG, "stream": number % 2 == 0, "n": 1 + number % 3 // 2}
        answer = await client.post("/v1/completions", json=body, headers={"X-Request-Timeout": f"{number % 40 / 1000 + 0.001}"})
        assert answer.status_code in (200, 504), answer.text

    for numbers in range(0, 120, 8):
        await asyncio.gather(*(give_up(number) for number in range(numbers, numbers + 8)))
    before = tokens_of(await status(client))
    after = tokens_of(await eventually(client, idle))
    assert after - before < LONG["max_tokens"] / 2, "an engine went on with an answer"


async def test_a_full_fleet_answers_429(client: httpx.AsyncClient) -> None:
    limits = {"max_in_flight": 1, "queue_length": 2, "queue_timeout_s": 1.0, "max_body_bytes": 3000}
    with deployed(user_config=limits):
        # The body's limit shows when a replica has followed.
        large = {"model": "tiny", "prompt": "x" * 4000, "max_tokens": 1}
        for _ in range(100):
            answers = [(await client.post("/v1/completions", json=large)).status_code for _ in range(8)]
            if set(answers) == {413}:
                break
            await asyncio.sleep(0.2)
        else:
            pytest.fail("the new settings did not take hold")
        answers = await asyncio.gather(*(client.post("/v1/completions", json={**LONG, "max_tokens": 500}) for _ in range(16)))
    outcomes = sorted(answer.status_code for answer in answers)
    print(f"\n16 requests for a fleet of few places: {outcomes}")
    assert set(outcomes) == {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "fleet_full"
    await eventually(client, idle)


async def test_keys(client: httpx.AsyncClient, tmp_path: Path, fleet: str) -> None:
    key, admin_key = f"sk-{uuid.uuid4()}", f"sk-{uuid.uuid4()}"
    (tmp_path / "keys").write_text(f"{key}  # a client\n")
    (tmp_path / "admin").write_text(f"{admin_key}\n")
    sources = {"api_keys": {"file": str(tmp_path / "keys")}, "admin_keys": {"file": str(tmp_path / "admin")}}
    marker = f"secret{uuid.uuid4().hex}"
    body = {"model": "tiny", "prompt": marker, "max_tokens": 1}

    def bearer(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    with deployed(user_config=sources):
        await until(client, lambda answer: answer.status_code == 401)
        assert (await client.get("/health")).status_code == 200
        assert (await client.post("/v1/completions", json=body, headers=bearer("sk-no"))).json()["error"][
            "code"
        ] == "invalid_api_key"
        assert (await client.post("/v1/completions", json=body, headers=bearer(key))).status_code == 200
        assert (await client.post("/v1/completions", json={**body, "n": marker}, headers=bearer(key))).status_code == 400
        assert (await client.post("/fleet/mode", json={"mode": "on"}, headers=bearer(key))).status_code == 403
        assert (await client.post("/fleet/mode", json={"mode": "auto"}, headers=bearer(admin_key))).status_code == 200
        dashboard = (await client.get("http://127.0.0.1:8265/api/serve/applications/")).text
    await until(client, lambda answer: answer.status_code == 200)
    logs = Path(ray._private.worker.global_worker.node.get_session_dir_path()) / "logs"
    logged = b"".join(path.read_bytes() for path in logs.rglob("*") if path.is_file())
    assert len(logged) > 10_000
    assert "api_keys" in dashboard
    for secret in (key, admin_key, marker):
        assert secret.encode() not in logged
        assert secret not in dashboard


async def test_a_replica_that_is_stopped_finishes_its_streams(client: httpx.AsyncClient) -> None:
    whole = await complete(client, LONG["prompt"], max_tokens=1000, ignore_eos=True)

    async def stream() -> str:
        text, done = "", False
        async with client.stream("POST", "/v1/completions", json={**LONG, "max_tokens": 1000, "stream": True}) as answer:
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line:
                    text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
        assert done
        return text

    async def replicas() -> AsyncIterator[int]:
        while True:
            details = (await client.get("http://127.0.0.1:8265/api/serve/applications/")).json()
            yield len(details["applications"]["specfleet"]["deployments"]["Ingress"]["replicas"])

    streams = [asyncio.create_task(stream()) for _ in range(8)]
    await eventually(client, lambda f: sum(e.report.load.running for e in f.engines if e.report) == 8)
    with deployed(num_replicas=1):
        assert set(await asyncio.gather(*streams)) == {whole}
        async for count in replicas():
            if count == 1:
                break
            await asyncio.sleep(0.2)
    await complete(client, LONG["prompt"], max_tokens=4)
