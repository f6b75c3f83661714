"""One SGLang engine that follows directives. Everything here runs in the event loop of the engine's own thread."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil

from cluster.messages.answer import Piece
from cluster.messages.directive import DepthTable, Directive
from cluster.messages.hello import ServingFacts
from cluster.messages.profile import StepTimes
from cluster.messages.report import EngineReport, Load
from cluster.messages.spec import EngineSpec
from workers import startup_profile
from workers.lease import Lease
from workers.report import counted
from workers.sglang_patch import start_progress
from workers.sglang_patch.contract import proof, source
from workers.sglang_patch.environment import COUNTERS_ENV
from workers.sglang_patch.health_check import Health
from workers.sglang_patch.openai_routes import OpenAIRoutes
from workers.sglang_patch.server_args import sglang_arguments
from workers.sglang_patch.start_files import get_facts, put_known
from workers.sglang_patch.table_encoding import encode
from workers.shared_counters import SharedCounters, SharedCountersReader

READ_BACK_S = 10.0
WATCH_EVERY_S = 0.1


class DirectedEngine:
    """Owns a `sglang.Engine` and keeps its scheduler on the table that holds."""

    def __init__(self, spec: EngineSpec) -> None:
        """Start the engine; blocks until its model is loaded and its graphs are captured.

        Raises:
            FileNotFoundError, ValueError: for a spec that cannot be served.
            RuntimeError: if SGLang does not start, with the reason, or the patch is not in force in every rank.
        """
        self.spec = spec
        self.incarnation = time.time_ns()
        folder = Path(tempfile.mkdtemp(prefix="specfleet-", dir="/dev/shm"))
        os.environ[COUNTERS_ENV] = str(folder)
        # SGLang and FlashInfer compile kernels by `ninja`, which is installed beside Python but need not be on the path.
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        try:
            arguments = sglang_arguments(spec, folder)
            known = startup_profile.known(spec)
            put_known(folder, known)
            source.require_wheel(spec.device)
            start_progress.note("importing SGLang")
            from workers.sglang_patch.serving_errors import Engine

            start_progress.note("loading the model")
            try:
                self._engine = Engine(**arguments)
            except (Exception, SystemExit) as error:
                # SGLang raises no more than that a process ended.
                raise RuntimeError(start_progress.failure() or str(error)) from error
            self._tokenizer: Any = self._engine.tokenizer_manager
            self._routes = OpenAIRoutes.of(self._tokenizer, self._engine.template_manager)
            in_use = [type(self._tokenizer), *self._routes.serving_classes]
            proof.require_proofs(folder, spec.tensor_parallel, spec.device, in_use)
            self._ranks = [SharedCountersReader(folder / f"rank{rank}") for rank in range(spec.tensor_parallel)]
            self._facts = get_facts(folder)
        finally:
            # The counters stay mapped; without a name no file is left behind by an engine that is killed.
            shutil.rmtree(folder)
        self._processes = [psutil.Process(pid) for pid in self._engine.get_all_child_pids()]
        self._lease = Lease(spec.fallback, time.monotonic())
        self._in_force: DepthTable | None = None
        self._revision = 0
        self._pushing = asyncio.Lock()
        self.health = Health(self._tokenizer)
        self._learn(known)

    async def prove_patch(self) -> None:
        """Put the first table in force, and read it back from every rank.

        Raises:
            RuntimeError: if a rank does not follow it.
        """
        await self._push()
        revisions = [rank.read().get("revision") for rank in self._ranks]
        if revisions != [self._revision] * self.spec.tensor_parallel:
            raise RuntimeError(f"the patch is not in force: ranks hold table revisions {revisions}, not {self._revision}")

    async def profile(self) -> None:
        """Measure step times if the spec wants that and they are not known. Takes up to 20 s."""
        if self.spec.profile == startup_profile.STARTUP and not self._facts.step_ms:
            self._learn(await startup_profile.measure(self))

    def _learn(self, times: StepTimes | None) -> None:
        if times is not None:
            self._facts = self._facts.model_copy(update={"step_ms": times.step_ms})

    async def take(self, directive: Directive) -> EngineReport:
        """Follow a directive unless it is stale, and report. Returns once its table is in force in every rank."""
        unknown = set(directive.table.depth_by_batch.values()) - set(self.spec.candidate_depths)
        if unknown:
            raise ValueError(f"{self.spec.name}: depths {sorted(unknown)} are not among {list(self.spec.candidate_depths)}")
        accepted = self._lease.offer(directive, time.monotonic())
        await self._push()
        return self.report(accepted)

    async def watch(self) -> None:
        """Fall back when the lease runs out, for as long as the engine lives.

        Raises:
            RuntimeError: when a process of the engine ended.
        """
        while True:
            if ended := [p.pid for p in self._processes if not p.is_running() or p.status() == psutil.STATUS_ZOMBIE]:
                raise RuntimeError(f"{self.spec.name}: processes {ended} ended")
            if self._lease.expire(time.monotonic()):
                await self._push()
            await asyncio.sleep(WATCH_EVERY_S)

    async def _push(self) -> None:
        """Bring the schedulers to the table that holds."""
        await self.follow(self._lease.table)

    async def follow(self, table: DepthTable) -> None:
        """Put a table in force in every rank. StepTimeFit them nothing while it stays the same."""
        async with self._pushing:
            if table == self._in_force:
                return
            from sglang.srt.managers.io_struct import SetInternalStateReq

            self._revision += 1
            updated = await self._tokenizer.set_internal_state(SetInternalStateReq(server_args=encode(table, self._revision)))
            if not all(updated):
                raise RuntimeError(f"{self.spec.name}: the scheduler refused table {table.depth_by_batch}")
            await self._read_back()
            self._in_force = table

    async def _read_back(self) -> None:
        """Return once the other ranks hold the newest table too: rank 0 has answered, and they take it in the same step."""
        deadline = time.monotonic() + READ_BACK_S
        others = self._ranks[1:]
        while behind := [i for i, rank in enumerate(others, 1) if rank.read().get("revision") != self._revision]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.spec.name}: the patch is not in force: ranks {behind} do not follow their tables")
            await asyncio.sleep(0.001)

    def counters(self) -> SharedCounters:
        """Those of rank 0, which speaks for the engine."""
        return self._ranks[0].read()

    def generate(self, input_ids: list[list[int]], max_new_tokens: int, **sampling: float) -> asyncio.Future[Any]:
        """Start requests of the engine's own, greedy unless `sampling` says otherwise. Cancelling the future ends them."""
        params = {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True, **sampling}
        running: asyncio.Future[Any] = asyncio.ensure_future(
            self._engine.async_generate(input_ids=input_ids, sampling_params=params)
        )
        return running

    def serving_facts(self) -> ServingFacts:
        """What the start settled. Known once the engine has been proved and profiled."""
        counters = self.counters()
        return ServingFacts(
            **dict(self._facts),
            incarnation=self.incarnation,
            candidate_depths=counters.candidates.nonzero()[0].tolist(),
            batch_sizes=counters.sizes.tolist(),
            max_running=self._tokenizer.load_snapshot_reader.read(0).max_running_requests,
        )

    def report(self, accepted: bool) -> EngineReport:
        ranks = [rank.read() for rank in self._ranks]
        in_flight = self.health.in_flight
        running = min(ranks[0].get("batch"), in_flight)
        snapshot = self._tokenizer.load_snapshot_reader.read(0)
        return EngineReport(
            engine=self.spec.name,
            incarnation=self.incarnation,
            accepted=accepted,
            applied=self._lease.applied(time.monotonic()),
            load=Load(
                running=running,
                waiting=in_flight - running,
                kv_usage=snapshot.token_usage,
            ),
            **counted(ranks),
        )

    def respond(self, route: str, body: bytes) -> AsyncGenerator[Piece, None]:
        """Answer an OpenAI request: a head and then the body, or an error. Closing it or cancelling its task ends the request."""
        return self._routes.respond(route, body)
