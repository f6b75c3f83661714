"""What the rest of `workers` asks of SGLang. `workers.sglang_patch.engine` implements it; tests have an engine of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import psutil

from cluster.messages.answer import Piece
from cluster.messages.directive import DepthTable
from cluster.messages.hello import EngineFacts
from cluster.messages.profile import StepTimes
from cluster.messages.spec import EngineSpec
from workers.shared_counters import SharedCounters

GREEDY: Mapping[str, float] = {"temperature": 0}


@dataclass(frozen=True)
class Generated:
    """What was generated for one prompt, so far or in all."""

    tokens: list[int]
    retractions: int  # times that the request was taken out of the batch to free memory
    top_logprobs: list[dict[int, float]]  # for each token, the logarithms of the most probable tokens' probabilities


class EngineFace(Protocol):
    """One SGLang engine. Use it in the event loop of the thread that started it."""

    @property
    def progress(self) -> str:
        """How far the start is, for people. May be asked for from any thread."""

    def start(self, spec: EngineSpec, known: StepTimes | None) -> None:
        """Start the engine; blocks until its model is loaded and its graphs are captured. Everything below may be asked for
        only afterwards. `known` step times tell at which batch sizes a depth needs no CUDA graph.

        Raises:
            FileNotFoundError, ValueError: for a spec that cannot be served.
            RuntimeError: if SGLang does not start, with the reason, or if a rank has started without the patch.
        """

    @property
    def processes(self) -> Sequence[psutil.Process]:
        """SGLang's processes; the engine is of no use when one of them has ended."""

    @property
    def facts(self) -> EngineFacts:
        """What was settled when the engine started."""

    @property
    def max_running(self) -> int:
        """Most requests that the engine decodes at once."""

    @property
    def in_flight(self) -> int:
        """Clients' requests that are not answered to the end. May be asked for from any thread."""

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache in use, 0 to 1. SGLang updates it every few steps."""

    async def put_in_force(self, table: DepthTable, revision: int) -> None:
        """Send a table to all ranks; its revision then appears in their counters.

        Raises:
            RuntimeError: if the scheduler refuses it.
        """

    async def counters(self) -> list[SharedCounters]:
        """A copy of every rank's counters, rank 0 first. Waits as long as a rank is in the middle of writing them."""

    def generate(
        self, prompts: list[list[int]], max_new_tokens: int, sampling: Mapping[str, float] = GREEDY, top_logprobs: int = 0
    ) -> asyncio.Future[list[Generated]]:
        """Answer prompts of the engine's own, each with so many tokens. `sampling` are SGLang's sampling parameters. Cancelling
        the future ends the requests."""

    def stream(self, prompt: list[int], max_new_tokens: int) -> AsyncGenerator[Generated, None]:
        """Answer one prompt greedily, with so many tokens; yields all tokens so far after each step that yielded any."""

    def respond(self, route: str, body: bytes) -> AsyncGenerator[Piece, None]:
        """Answer an OpenAI request: a head and then the body in pieces, or an error, which may also end a body. Closing it or
        cancelling its task ends the request."""

    async def check_health(self) -> None:
        """Return once the engine has shown that it generates tokens.

        Raises:
            TimeoutError: if it has not.
        """

    async def flush_prefix_cache(self) -> None:
        """Empty the prefix cache, as soon as the scheduler is idle.

        Raises:
            RuntimeError: if it does not become idle.
        """

    def shutdown(self) -> None:
        """End SGLang's processes."""
