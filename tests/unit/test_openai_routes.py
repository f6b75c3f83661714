"""What SGLang's handlers answer, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from cluster.messages.answer import ResponseHead
from cluster.messages.errors import ApiError
from workers.sglang_patch.openai_routes import OpenAIRoutes


class Body(BaseModel):
    prompt: str | list[int] | list[list[int]]
    stop_token_ids: list[int] | None = None
    min_p: float | None = None


class Serving:
    def __init__(self, response: Any) -> None:
        self.response = response

    async def handle_request(self, _request: Body, _: None) -> Any:
        return self.response


async def respond(response: Any, body: bytes = b'{"prompt": "a"}', deterministic: bool = False) -> list[Any]:
    routes = OpenAIRoutes.__new__(OpenAIRoutes)
    routes._vocabulary, routes._deterministic = 100, deterministic
    routes._routes = {"completions": (Body, Serving(response))}
    return [piece async for piece in routes.respond("completions", body)]


def stream(*chunks: str) -> Any:
    async def body() -> AsyncIterator[str]:
        for chunk in chunks:
            yield chunk

    return SimpleNamespace(body_iterator=body())


def answer(text: str) -> Any:
    return SimpleNamespace(model_dump_json=lambda: text)


TEXT = r'data: {"choices":[{"text":"data: {\"error\": 1} \"finish_reason\":\"abort\""}]}' + "\n\n"
DONE = "data: [DONE]\n\n"
ERROR = f"data: {json.dumps({'error': {'message': 'out of memory', 'code': 500}})}\n\n"
ABORTED = 'data: {"choices":[{"text":"","finish_reason":"abort"}]}\n\n'


async def test_a_stream_passes() -> None:
    head, *rest = await respond(stream(TEXT, DONE))
    assert head.media_type == "text/event-stream"
    assert rest == [TEXT.encode(), DONE.encode()]


@pytest.mark.parametrize(("chunk", "message"), [(ERROR, "out of memory"), (ABORTED, "ended the request")])
async def test_a_stream_that_breaks_ends_in_an_error_and_is_not_done(chunk: str, message: str) -> None:
    _, first, error = await respond(stream(TEXT, chunk, DONE))
    assert first == TEXT.encode()
    assert isinstance(error, ApiError)
    assert error.status == 502
    assert message in error.message


async def test_a_plain_answer_passes_and_an_aborted_one_does_not() -> None:
    assert await respond(answer('{"choices":[]}')) == [ResponseHead(), b'{"choices":[]}']
    (error,) = await respond(answer('{"choices":[{"finish_reason":"abort"}]}'))
    assert error.status == 502


async def test_a_refusal_keeps_its_status() -> None:
    (error,) = await respond(SimpleNamespace(status_code=400, body=b'{"message": "too long"}'))
    assert (error.status, error.message) == (400, "too long")


async def test_a_stream_s_error_is_the_client_s_if_sglang_says_so() -> None:
    *_, error = await respond(stream(f"data: {json.dumps({'error': {'message': 'no schema', 'code': 400}})}\n\n", DONE))
    assert (error.status, error.type, error.message) == (400, "invalid_request_error", "no schema")


NO_TOKEN = "Grammar accept_token failed: Tokens not accepted: 44"


async def test_a_request_that_no_text_can_fit_is_the_client_s_fault() -> None:
    (error,) = await respond(SimpleNamespace(status_code=500, body=json.dumps({"message": NO_TOKEN}).encode()))
    assert (error.status, error.type) == (400, "invalid_request_error")
    *_, error = await respond(stream(TEXT, f"data: {json.dumps({'error': {'message': NO_TOKEN}})}\n\n"))
    assert error.status == 400


async def test_a_body_that_sglang_cannot_read_is_refused_by_name() -> None:
    (error,) = await respond(answer(""), b'{"prompt": "a", "stop_token_ids": 1}')
    assert (error.status, error.param) == (400, "stop_token_ids")


@pytest.mark.parametrize("body", [{"prompt": [1, 100]}, {"prompt": [[1], [-1]]}, {"prompt": "a", "stop_token_ids": [100]}])
async def test_a_token_that_the_model_does_not_know_is_refused(body: dict[str, Any]) -> None:
    (error,) = await respond(answer(""), json.dumps(body).encode())
    assert (error.status, error.param) == (400, list(body)[-1])
    assert await respond(answer("{}"), b'{"prompt": [0, 99]}') == [ResponseHead(), b"{}"]


@pytest.mark.parametrize(("deterministic", "min_p", "refused"), [(True, 0.1, True), (True, 0, False), (False, 0.1, False)])
async def test_min_p_is_refused_in_deterministic_mode(deterministic: bool, min_p: float, refused: bool) -> None:
    body = json.dumps({"prompt": "a", "min_p": min_p}).encode()
    first, *_ = await respond(answer("{}"), body, deterministic)
    assert isinstance(first, ApiError) == refused
    assert not refused or (first.status, first.param) == (400, "min_p")
