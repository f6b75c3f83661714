"""OpenAI requests, answered by SGLang's own serving classes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError

from cluster.messages import errors
from cluster.messages.answer import EVENT_STREAM, Piece, ResponseHead
from cluster.messages.errors import ApiError

_NO_TOKEN_LEFT = "Grammar accept_token failed"
"""How SGLang begins to say that what constrains an answer refused its next token, which it does if it allows none."""


class OpenAIRoutes:
    """SGLang's handlers, without its HTTP server: bytes in, bytes out."""

    def __init__(self, tokenizer_manager: Any, template_manager: Any) -> None:
        from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest
        from sglang.srt.entrypoints.openai.serving_completions import OpenAIServingCompletion

        self._vocabulary: int = tokenizer_manager.model_config.vocab_size
        self._deterministic: bool = tokenizer_manager.server_args.enable_deterministic_inference
        self._routes: dict[str, tuple[type[Any], Any]] = {
            "chat/completions": (
                ChatCompletionRequest,
                tokenizer_manager.serving_chat_class(tokenizer_manager, template_manager),
            ),
            "completions": (CompletionRequest, OpenAIServingCompletion(tokenizer_manager, template_manager)),
        }

    async def respond(self, route: str, body: bytes) -> AsyncGenerator[Piece, None]:
        """Yield a head and then the body in pieces (one for plain JSON, one a chunk for SSE), or one error.

        A stream that breaks ends with an error, and without the `[DONE]` that SGLang sends after its own error events.
        """
        model, serving = self._routes[route]
        try:
            request = model.model_validate_json(body)
        except ValidationError as error:
            yield errors.invalid_body(error)
            return
        if refusal := self._unknown_token(request) or self._min_p(request):
            yield refusal
            return
        response = await serving.handle_request(request, None)
        if hasattr(response, "body_iterator"):
            yield ResponseHead(media_type=EVENT_STREAM)
            async with aclosing(response.body_iterator) as chunks:
                async for chunk in chunks:
                    if broken := _broken(chunk):
                        yield broken
                        return
                    yield chunk.encode()
        elif getattr(response, "status_code", 200) >= 400:
            yield _refused(response.status_code, json.loads(response.body))
        else:
            answer = response.model_dump_json()
            if broken := _broken(answer):
                yield broken
                return
            yield ResponseHead()
            yield answer.encode()

    def _unknown_token(self, request: Any) -> ApiError | None:
        """Refuse token ids beyond the vocabulary: SGLang looks them up unchecked, and its scheduler ends of it."""
        prompt = getattr(request, "prompt", None)
        prompts = prompt if isinstance(prompt, list) else []
        ids = [i for item in prompts for i in (item if isinstance(item, list) else [item]) if isinstance(i, int)]
        for field, tokens in [("prompt", ids), ("stop_token_ids", request.stop_token_ids or [])]:
            if tokens and not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
                return errors.invalid_field(f"{field}: token ids are from 0 to {self._vocabulary - 1}", field)
        return None

    def _min_p(self, request: Any) -> ApiError | None:
        """Refuse min_p in deterministic mode: SGLang samples by seeds there, and its scheduler ends of the two together."""
        if self._deterministic and request.min_p:
            return errors.invalid_field("min_p: engines in SGLang's deterministic mode cannot sample with it", "min_p")
        return None


def _broken(answer: str) -> ApiError | None:
    """The error in an event or an answer, if it is one. Quotes inside of generated text are escaped, so text cannot pass
    for either mark."""
    if answer.startswith('data: {"error"'):
        error = json.loads(answer.removeprefix("data: "))["error"]
        if 400 <= error.get("code", 500) < 500:
            return _no_text_fits(error["message"]) or errors.from_status(error["code"], error["message"])
        return _no_text_fits(error["message"]) or errors.engine_failed(error["message"])
    if '"finish_reason":"abort"' in answer:
        return errors.engine_failed("the engine ended the request")
    return None


def _refused(status: int, body: dict[str, Any]) -> ApiError:
    message = str(body.get("message", body))
    return _no_text_fits(message) or errors.from_status(status, message, body.get("param"))


def _no_text_fits(message: str) -> ApiError | None:
    if message.startswith(_NO_TOKEN_LEFT):
        return errors.invalid_field("no text fits the regex, JSON schema or tools of the request")
    return None
