"""SGLang's classes that answer requests, changed so that every error is an `ApiError`. Importing this takes many seconds.

SGLang's own make a JSON body or an event of each error at once, which would have to be told from generated text afterwards.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn

from sglang.srt.entrypoints import engine
from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.entrypoints.openai.serving_completions import OpenAIServingCompletion
from sglang.srt.managers.tokenizer_manager import TokenizerManager

from cluster.messages.errors import ApiError
from workers.sglang_patch.openai_routes import RequestFailed, api_error


class ServingErrors(OpenAIServingBase):
    """Overrides the two methods that make the errors of a serving class."""

    def create_error_response(
        self, message: str, err_type: str = "BadRequestError", status_code: int = 400, param: str | None = None
    ) -> ApiError:
        return api_error(status_code, message, param)

    def create_streaming_error_response(
        self, message: str, err_type: str = "BadRequestError", status_code: int = 400
    ) -> NoReturn:
        raise RequestFailed(api_error(status_code if status_code < 500 else HTTPStatus.BAD_GATEWAY, message))


class Chat(ServingErrors, OpenAIServingChat):
    """/v1/chat/completions."""


class Completions(ServingErrors, OpenAIServingCompletion):
    """/v1/completions."""


class AbortErrors(TokenizerManager):
    """Makes an error of every aborted request."""

    async def _handle_abort_finish_reason(self, out: dict[str, Any], state: Any, is_stream: bool) -> Any:
        """Give every abort a status by which SGLang's streams know it for an error.

        They look for an `HTTPStatus`, but the scheduler's arrives as a plain number. An abort without one, by which SGLang
        means that somebody asked for it, would end the answer as if it were whole; here nobody asks and then reads on.
        """
        reason = out["meta_info"]["finish_reason"]
        if reason["type"] == "abort":
            if reason.get("status_code") is None:
                reason["message"] = "the engine ended the request"
            reason["status_code"] = HTTPStatus(reason.get("status_code") or HTTPStatus.BAD_GATEWAY)
        return await super()._handle_abort_finish_reason(out, state, is_stream)


class Engine(engine.Engine):
    """Uses that tokenizer manager."""

    init_tokenizer_manager_func = staticmethod(partial(engine.init_tokenizer_manager, TokenizerManagerClass=AbortErrors))
