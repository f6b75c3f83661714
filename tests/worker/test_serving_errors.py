"""How SGLang's own serving classes and tokenizer manager tell errors, as the patch changes them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.entrypoints.openai import serving_chat, serving_completions
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest
from sglang.srt.managers.io_struct import GenerateReqInput

from cluster.messages.answer import ResponseHead
from cluster.messages.errors import ApiError
from workers.sglang_patch import serving_errors
from workers.sglang_patch.openai_routes import OpenAIRoutes

META = {"prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 0, "id": "1", "weight_version": "default"}


class TokenizerManager(serving_errors.AbortErrors):
    """Its answers come from a script: texts, finish reasons as they come from the scheduler, or errors that it raises."""

    def __init__(self, *script: Any) -> None:
        self.script = script
        self.server_args = None
        self.request_logger = SimpleNamespace(log_requests=False)
        self.rid_to_state: dict[str, Any] = {}
        self.enable_lora = False
        self.served_model_name = "tiny"

    async def generate_request(self, obj: Any, request: Any = None) -> AsyncGenerator[dict[str, Any], None]:
        text = ""
        for item in self.script:
            if isinstance(item, Exception):
                raise item
            out = {"text": text, "output_ids": [1], "meta_info": {**META, "finish_reason": None}}
            if isinstance(item, str):
                out["text"] = text = text + item
            else:
                out["meta_info"]["finish_reason"] = dict(item)
                state = SimpleNamespace(obj=SimpleNamespace(rid="1", lora_path=None), lora_released=False)
                await self._handle_abort_finish_reason(out, state, obj.stream)
            if obj.stream or out["meta_info"]["finish_reason"]:
                yield out

    def create_abort_task(self, obj: Any) -> None:
        pass


class _Unconverted:
    """Passes a request on without a chat template or a tokenizer."""

    def _convert_to_internal_request(self, request: Any, raw_request: Any = None) -> tuple[Any, Any]:
        return GenerateReqInput(text="a", stream=request.stream), request

    def _validate_request(self, request: Any) -> None:
        return None


class Completions(_Unconverted, serving_errors.Completions):
    """/v1/completions."""


class Chat(_Unconverted, serving_errors.Chat):
    """/v1/chat/completions."""

    def __init__(self, tokenizer_manager: TokenizerManager) -> None:
        self.tokenizer_manager = tokenizer_manager
        self.reasoning_parser = self.tool_call_parser = self.chat_encoding_spec = None
        self._encoding_adapter = None


BODIES: dict[str, dict[str, Any]] = {
    "completions": {"model": "tiny", "prompt": "a"},
    "chat/completions": {"model": "tiny", "messages": [{"role": "user", "content": "a"}]},
}


@pytest.fixture(params=BODIES)
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    settings = SimpleNamespace(
        stream_response_default_include_usage=False,
        incremental_streaming_output=False,
        enable_cache_report=False,
        return_input_ids=False,
        return_output_ids=False,
        tool_strict_level=0,
    )
    for module in (serving_chat, serving_completions):
        monkeypatch.setattr(module, "get_serving", lambda: settings)
    return str(request.param)


async def respond(route: str, stream: bool, *script: Any) -> list[Any]:
    manager = TokenizerManager(*script)
    routes: dict[str, tuple[Any, Any]] = {
        "completions": (CompletionRequest, Completions(manager, None)),
        "chat/completions": (ChatCompletionRequest, Chat(manager)),
    }
    body = json.dumps({**BODIES[route], "stream": stream}).encode()
    answer = OpenAIRoutes(routes, vocabulary=100, deterministic=False).respond(route, body)
    return [piece async for piece in answer]


def abort(status: int | None, message: str = "because") -> dict[str, Any]:
    """As it comes from the scheduler's process, where a status is an `HTTPStatus`; on the way it becomes a number."""
    return {"type": "abort", "message": message, "status_code": status, "err_type": None}


STOP = {"type": "stop", "matched": None}
# What a script ends with, and the error that a client gets: status, code, and a part of the message.
ENDS: list[tuple[Any, int, str | None, str]] = [
    (abort(None), 502, "engine_failed", "ended the request"),
    (abort(400), 400, None, "because"),
    (abort(500, "Grammar accept_token failed: 44"), 400, None, "no text fits"),
    (ValueError("too long"), 400, None, "too long"),
]
IDS = ["aborted", "refused by the scheduler", "no text fits", "refused by the tokenizer"]


async def test_a_whole_answer_passes(route: str) -> None:
    head, *pieces, done = await respond(route, True, "Hello", STOP)
    assert isinstance(head, ResponseHead)
    assert b"Hello" in b"".join(pieces)
    assert done == b"data: [DONE]\n\n"
    head, body = await respond(route, False, "Hello", STOP)
    assert isinstance(head, ResponseHead)
    assert b"Hello" in body


@pytest.mark.parametrize(("end", "status", "code", "message"), ENDS, ids=IDS)
@pytest.mark.parametrize("before", [(), ("Hello",)], ids=["at once", "after some text"])
async def test_a_stream_ends_in_an_error(
    route: str, before: tuple[str, ...], end: Any, status: int, code: str | None, message: str
) -> None:
    *pieces, error = await respond(route, True, *before, end)
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (status, code)
    assert message in error.message
    assert bool(pieces) == bool(before), "an error before any text has a status of its own"
    assert b"error" not in b"".join(pieces[1:])


@pytest.mark.parametrize(("end", "status", "code", "message"), ENDS, ids=IDS)
async def test_a_plain_answer_is_an_error(route: str, end: Any, status: int, code: str | None, message: str) -> None:
    (error,) = await respond(route, False, "Hello", end)
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (status, code)
    assert message in error.message
