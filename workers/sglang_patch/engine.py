"""The engine face over `sglang.Engine`. SGLang is imported when an engine starts, because that takes many seconds."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import psutil

from cluster.messages.answer import Piece
from cluster.messages.directive import DepthTable
from cluster.messages.hello import EngineFacts
from cluster.messages.profile import StepTimes
from cluster.messages.spec import EngineSpec
from workers.engine_face import GREEDY, Generated
from workers.sglang_patch import start_files, start_progress
from workers.sglang_patch.contract import discovery, proof, source
from workers.sglang_patch.environment import COUNTERS_ENV
from workers.sglang_patch.health_check import HealthCheck
from workers.sglang_patch.openai_routes import OpenAIRoutes
from workers.sglang_patch.server_args import sglang_arguments
from workers.sglang_patch.table_encoding import encode
from workers.shared_counters import SharedCounters, SharedCountersReader

_IDLE_WITHIN_S = 60.0


class PlainEngine:
    """Any SGLang engine, with the patch or without: generates for prompts of tokens."""

    processes: list[psutil.Process]

    def launch(self, arguments: dict[str, Any]) -> None:
        """Start the engine with SGLang's server arguments; blocks until its model is loaded and its graphs are captured."""
        # SGLang and FlashInfer call `ninja` to compile kernels. It is installed beside Python, which need not be on the path.
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        from workers.sglang_patch.serving_errors import Engine

        self._engine = Engine(**arguments)
        self._tokenizer = self._engine.tokenizer_manager
        self.processes = [psutil.Process(pid) for pid in self._engine.get_all_child_pids()]

    def generate(
        self, prompts: list[list[int]], max_new_tokens: int, sampling: Mapping[str, float] = GREEDY, top_logprobs: int = 0
    ) -> asyncio.Future[list[Generated]]:
        async def answers() -> list[Generated]:
            outputs = await self._engine.async_generate(
                input_ids=prompts,
                sampling_params=_exactly(max_new_tokens, sampling),
                return_logprob=bool(top_logprobs),
                top_logprobs_num=top_logprobs,
            )
            return [_generated(output) for output in outputs]

        return asyncio.ensure_future(answers())

    async def stream(self, prompt: list[int], max_new_tokens: int) -> AsyncGenerator[Generated, None]:
        params = _exactly(max_new_tokens, GREEDY)
        async for output in await self._engine.async_generate(input_ids=prompt, sampling_params=params, stream=True):
            yield _generated(output)

    def shutdown(self) -> None:
        self._engine.shutdown()


class SGLangEngine(PlainEngine):
    """Implements `workers.engine_face.EngineFace`: an engine with the patch in all its scheduler processes."""

    facts: EngineFacts

    @property
    def progress(self) -> str:
        return start_progress.noted()

    def start(self, spec: EngineSpec, known: StepTimes | None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="specfleet-", dir="/dev/shm"))
        os.environ[COUNTERS_ENV] = str(folder)
        try:
            arguments = sglang_arguments(spec, folder)
            start_files.write_step_times(folder, known)
            discovery.require_plugin()
            source.require_wheel(spec.device)
            start_progress.note("importing SGLang and loading the model")
            try:
                self.launch(arguments)
            except (Exception, SystemExit) as error:
                # SGLang says no more than that a process ended.
                raise RuntimeError(start_progress.failure() or str(error)) from error
            self._routes = OpenAIRoutes.of(self._tokenizer, self._engine.template_manager)
            proof.require_proofs(
                folder, spec.tensor_parallel, spec.device, in_use=[type(self._tokenizer), *self._routes.serving_classes]
            )
            self._ranks = [SharedCountersReader(folder / f"rank{rank}") for rank in range(spec.tensor_parallel)]
            facts = start_files.read_facts(folder)
        finally:
            # The counters stay mapped. Their files go now, so that an engine that is killed leaves none behind.
            shutil.rmtree(folder)
        self.facts = facts if known is None else facts.model_copy(update={"step_ms": known.step_ms})
        self._health = HealthCheck(self._tokenizer)

    @property
    def max_running(self) -> int:
        return int(self._load().max_running_requests)

    @property
    def in_flight(self) -> int:
        return self._health.in_flight

    @property
    def kv_usage(self) -> float:
        return float(self._load().token_usage)

    def _load(self) -> Any:
        return self._tokenizer.load_snapshot_reader.read(0)

    async def put_in_force(self, table: DepthTable, revision: int) -> None:
        from sglang.srt.managers.io_struct import SetInternalStateReq

        updated = await self._tokenizer.set_internal_state(SetInternalStateReq(server_args=encode(table, revision)))
        if not all(updated):
            raise RuntimeError(f"the scheduler refused table {table.depth_by_batch}")

    async def counters(self) -> list[SharedCounters]:
        return [await rank.read() for rank in self._ranks]

    def respond(self, route: str, body: bytes) -> AsyncGenerator[Piece, None]:
        return self._routes.respond(route, body)

    async def check_health(self) -> None:
        await self._health.check()

    async def flush_prefix_cache(self) -> None:
        # The scheduler has one more step in flight when the last answer is here.
        flushed = await self._tokenizer.flush_cache(timeout_s=_IDLE_WITHIN_S)
        if not flushed.success:
            raise RuntimeError(f"the prefix cache was not flushed: {flushed.message}")


def _exactly(tokens: int, sampling: Mapping[str, float]) -> dict[str, float | bool]:
    return {**sampling, "max_new_tokens": tokens, "ignore_eos": True}


def _generated(output: dict[str, Any]) -> Generated:
    meta = output["meta_info"]
    return Generated(
        tokens=output["output_ids"],
        retractions=meta["num_retractions"],
        top_logprobs=[{token: log for log, token, _ in top} for top in meta.get("output_top_logprobs", [])],
    )
