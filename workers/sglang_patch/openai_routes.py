"""Answers OpenAI requests by SGLang's own serving classes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel, ValidationError

from cluster.messages import errors
from cluster.messages.answer import EVENT_STREAM, Piece, ResponseHead
from cluster.messages.errors import ApiError

_NO_TOKEN_LEFT = "Grammar accept_token failed"
"""Begins the message of a request whose grammar refused the next token, as it does when it allows none at all. The text is all
that tells this error from others: the scheduler gives it status 500 and no type of its own."""


class RequestFailed(BaseException):
    """A request failed after SGLang began to stream its answer.

    It is no `Exception`, because SGLang's stream of completions catches all of those and would make text of it.
    """

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class OpenAIRoutes:
    """SGLang's handlers, without its HTTP server: bytes in, bytes out."""

    def __init__(self, routes: Mapping[str, tuple[type[BaseModel], Any]], vocabulary: int, deterministic: bool) -> None:
        """`routes` has the model of each route's body and the serving class that answers it. The engine knows tokens from 0 to
        `vocabulary` - 1; `deterministic` is SGLang's mode of that name."""
        self._routes = routes
        self._vocabulary = vocabulary
        self._deterministic = deterministic

    @classmethod
    def of(cls, tokenizer_manager: Any, template_manager: Any) -> OpenAIRoutes:
        """The routes of an engine in this process."""
        from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest

        from workers.sglang_patch.serving_errors import Chat, Completions

        return cls(
            {
                "chat/completions": (ChatCompletionRequest, Chat(tokenizer_manager, template_manager)),
                "completions": (CompletionRequest, Completions(tokenizer_manager, template_manager)),
            },
            vocabulary=tokenizer_manager.model_config.vocab_size,
            deterministic=tokenizer_manager.server_args.enable_deterministic_inference,
        )

    @property
    def serving_classes(self) -> list[type]:
        """The classes that answer, for the proof that they are the changed ones."""
        return [type(serving) for _, serving in self._routes.values()]

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
        try:
            response = await serving.handle_request(request, None)
            if isinstance(response, ApiError):
                yield response
            elif hasattr(response, "body_iterator"):
                yield ResponseHead(media_type=EVENT_STREAM)
                one_id = _OneId()
                async with aclosing(response.body_iterator) as chunks:
                    async for chunk in chunks:
                        yield one_id.of(chunk).encode()
            else:
                yield ResponseHead()
                yield response.model_dump_json().encode()
        except RequestFailed as failed:
            yield failed.error

    def _unknown_token(self, request: Any) -> ApiError | None:
        """Refuse token ids beyond the vocabulary: SGLang looks them up unchecked, and that ends its scheduler."""
        prompt = getattr(request, "prompt", None)
        prompts = prompt if isinstance(prompt, list) else []
        ids = [i for item in prompts for i in (item if isinstance(item, list) else [item]) if isinstance(i, int)]
        for field, tokens in [("prompt", ids), ("stop_token_ids", request.stop_token_ids or [])]:
            if tokens and not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
                return errors.invalid_field(f"{field}: token ids are from 0 to {self._vocabulary - 1}", field)
        return None

    def _min_p(self, request: Any) -> ApiError | None:
        """Refuse min_p in deterministic mode: SGLang samples by seeds there, and min_p with seeds ends its scheduler."""
        if self._deterministic and request.min_p:
            return errors.invalid_field("min_p: engines in SGLang's deterministic mode cannot sample with it", "min_p")
        return None


def api_error(status: int, message: str, param: str | None = None) -> ApiError:
    """What a client is told of an error that SGLang gave this status."""
    if message.startswith(_NO_TOKEN_LEFT):
        return errors.invalid_field("no text fits the regex, JSON schema or tools of the request")
    return errors.engine_failed(message) if status == 502 else errors.from_status(status, message, param)


class _OneId:
    """Gives all events of a stream the id of its first one. SGLang gives each of `n` choices an id of its own."""

    _AT_THE_BEGINNING = re.compile(r'data: \{"id":"[^"]*"')

    def __init__(self) -> None:
        self._first: str | None = None

    def of(self, event: str) -> str:
        found = self._AT_THE_BEGINNING.match(event)
        if found is None:
            return event
        self._first = self._first or found[0]
        return self._first + event[found.end() :]
