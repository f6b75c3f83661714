"""The body of each of OpenAI's routes."""

from __future__ import annotations

from serve_app.bodies.chat import ChatRequest
from serve_app.bodies.completion import CompletionRequest
from serve_app.bodies.request import Request

ROUTES: dict[str, type[Request]] = {"chat/completions": ChatRequest, "completions": CompletionRequest}
