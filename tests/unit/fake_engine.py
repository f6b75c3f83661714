"""An engine face without SGLang: counters of its ranks, answers by a script, and a process that only sleeps."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import psutil

from cluster.messages.answer import Piece, ResponseHead
from cluster.messages.directive import DepthTable
from cluster.messages.hello import EngineFacts
from cluster.messages.profile import StepTimes
from cluster.messages.spec import EngineSpec
from workers.engine_face import GREEDY, Generated
from workers.shared_counters import SharedCounters, SharedCountersReader


class FakeEngine:
    """Implements `workers.engine_face.EngineFace`."""

    def __init__(self, folder: Path, ranks: int = 1) -> None:
        self.progress = "loading"
        self.facts = EngineFacts(off="not at all")
        self.max_running, self.in_flight, self.kv_usage = 16, 0, 0.25
        self.may_start = threading.Event()
        self.may_start.set()
        self.fails: Exception | None = None  # what a start raises
        self.refuses = False
        self.deaf: set[int] = set()  # ranks that do not follow their tables
        self.tables: list[DepthTable] = []
        self.health_checks = 0
        self._sleeper = subprocess.Popen(["sleep", "600"])
        self.processes = [psutil.Process(self._sleeper.pid)]
        self.ranks = [SharedCounters.create(folder / f"rank{rank}", [0, 1, 3], [1, 2, 4]) for rank in range(ranks)]
        self._readers = [SharedCountersReader(folder / f"rank{rank}") for rank in range(ranks)]

    def start(self, spec: EngineSpec, known: StepTimes | None) -> None:
        self.may_start.wait()
        if self.fails:
            raise self.fails

    async def put_in_force(self, table: DepthTable, revision: int) -> None:
        if self.refuses:
            raise RuntimeError("the scheduler refused the table")
        self.tables.append(table)
        for rank, counters in enumerate(self.ranks):
            if rank not in self.deaf:
                with counters.writing():
                    counters.revision[()] = revision

    async def counters(self) -> list[SharedCounters]:
        return [await reader.read() for reader in self._readers]

    def generate(
        self, prompts: list[list[int]], max_new_tokens: int, sampling: Mapping[str, float] = GREEDY, top_logprobs: int = 0
    ) -> asyncio.Future[list[Generated]]:
        async def answers() -> list[Generated]:
            return [Generated([1] * max_new_tokens, 0, []) for _ in prompts]

        return asyncio.ensure_future(answers())

    async def stream(self, prompt: list[int], max_new_tokens: int) -> AsyncGenerator[Generated, None]:
        yield Generated([1] * max_new_tokens, 0, [])

    async def respond(self, route: str, body: bytes) -> AsyncGenerator[Piece, None]:
        yield ResponseHead()
        yield route.encode() + b" " + body

    async def check_health(self) -> None:
        self.health_checks += 1

    async def flush_prefix_cache(self) -> None:
        pass

    def shutdown(self) -> None:
        """Also what a test does to let a process of the engine die."""
        self._sleeper.kill()
        self._sleeper.wait()
