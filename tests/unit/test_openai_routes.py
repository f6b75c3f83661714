"""What SGLang's serving classes answer, and what becomes of it. Those themselves are in tests/worker/test_serving_errors.py."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from cluster.messages.answer import ResponseHead
from cluster.messages.errors import ApiError
from workers.sglang_patch.openai_routes import OpenAIRoutes, RequestFailed, api_error


class Body(BaseModel):
    prompt: str | list[int] | list[list[int]]
    stop_token_ids: list[int] | None = None
    min_p: float | None = None


class Serving:
    def __init__(self, response: Any) -> None:
        self.response = response

    async def handle_request(self, _request: Body, _: None) -> Any:
        if isinstance(self.response, RequestFailed):
            raise self.response
        return self.response


async def respond(response: Any, body: bytes = b'{"prompt": "a"}', deterministic: bool = False) -> list[Any]:
    routes = OpenAIRoutes({"completions": (Body, Serving(response))}, vocabulary=100, deterministic=deterministic)
    return [piece async for piece in routes.respond("completions", body)]


def stream(*chunks: str | RequestFailed) -> Any:
    async def body() -> AsyncGenerator[str, None]:
        for chunk in chunks:
            if isinstance(chunk, RequestFailed):
                raise chunk
            yield chunk

    return SimpleNamespace(body_iterator=body())


def answer(text: str) -> Any:
    return SimpleNamespace(model_dump_json=lambda: text)


TEXT = r'data: {"choices":[{"text":"data: {\"error\": 1} \"finish_reason\":\"abort\""}]}' + "\n\n"
DONE = "data: [DONE]\n\n"
ERROR = api_error(502, "out of memory")


async def test_a_stream_passes() -> None:
    head, *rest = await respond(stream(TEXT, DONE))
    assert head.media_type == "text/event-stream"
    assert rest == [TEXT.encode(), DONE.encode()]


async def test_all_choices_of_a_stream_have_one_id() -> None:
    first, second = (
        f'data: {{"id":"{i}","choices":[{{"index":{n},"text":"\\"id\\":\\"x\\""}}]}}\n\n' for n, i in enumerate("ab")
    )
    _, *rest = await respond(stream(first, second, first, DONE))
    assert rest == [first.encode(), second.replace('"id":"b"', '"id":"a"').encode(), first.encode(), DONE.encode()]


async def test_a_stream_that_breaks_ends_in_an_error_and_is_not_done() -> None:
    assert await respond(stream(TEXT, RequestFailed(ERROR), DONE)) == [
        ResponseHead(media_type="text/event-stream"), TEXT.encode(), ERROR
    ]  # fmt: skip


async def test_a_stream_that_fails_before_its_first_piece_is_an_error_alone() -> None:
    assert await respond(RequestFailed(ERROR)) == [ERROR]


async def test_a_plain_answer_passes_and_an_error_alone_does_too() -> None:
    assert await respond(answer('{"choices":[]}')) == [ResponseHead(), b'{"choices":[]}']
    assert await respond(ERROR) == [ERROR]


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(400, "invalid_request_error", None), (502, "server_error", "engine_failed"), (503, "server_error", None)],
)
def test_an_error_keeps_its_status(status: int, kind: str, code: str | None) -> None:
    error = api_error(status, "because", "prompt")
    assert (error.status, error.message, error.type, error.code) == (status, "because", kind, code)


def test_a_request_that_no_text_can_fit_is_the_client_s_fault() -> None:
    error = api_error(500, "Grammar accept_token failed: Tokens not accepted: 44")
    assert (error.status, error.type) == (400, "invalid_request_error")
    assert "no text fits" in error.message


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
