"""One engine that follows directives. Everything here runs in the event loop of the engine's own thread."""

from __future__ import annotations

import asyncio
import time

import psutil

from cluster.messages.directive import DepthTable, Directive
from cluster.messages.hello import ServingFacts
from cluster.messages.profile import StepTimes
from cluster.messages.report import EngineReport, Load
from cluster.messages.spec import EngineSpec
from workers.engine_face import EngineFace
from workers.lease import Lease
from workers.report import counted
from workers.shared_counters import SharedCounters

PROOF_S = 60.0
"""Time for all ranks to put their first table in force."""

_READ_BACK_EVERY_S = 0.001
_WATCH_EVERY_S = 0.1


class DirectedEngine:
    """Keeps an engine on the table of its newest directive, or on the fallback when the lease is over."""

    def __init__(self, spec: EngineSpec, face: EngineFace) -> None:
        """`face` is an engine that has started."""
        self.spec = spec
        self.face = face
        self.incarnation = time.time_ns()
        self._facts = face.facts
        self._lease = Lease(spec.fallback, time.monotonic())
        self._in_force: DepthTable | None = None
        self._revision = 0
        self._behind = list(range(spec.tensor_parallel))  # ranks that do not hold the newest table
        self._changing = asyncio.Lock()

    async def prove_patch(self) -> None:
        """Put the first table in force, and read it back from every rank.

        Raises:
            RuntimeError: naming the ranks that do not follow it.
        """
        try:
            async with asyncio.timeout(PROOF_S):
                await self._follow_lease()
        except TimeoutError:
            message = f"the patch is not in force: ranks {self._behind} have not followed their first table for {PROOF_S:g} s"
            raise RuntimeError(message) from None

    def learn(self, times: StepTimes) -> None:
        """Tell these step times among the facts."""
        self._facts = self._facts.model_copy(update={"step_ms": times.step_ms})

    async def facts(self) -> ServingFacts:
        """What never changes while the engine serves. Call it once step times have been measured, if they are to be."""
        counters = await self.counters()
        return ServingFacts(
            **dict(self._facts),
            incarnation=self.incarnation,
            candidate_depths=counters.candidates.nonzero()[0].tolist(),
            batch_sizes=counters.sizes.tolist(),
            max_running=self.face.max_running,
        )

    async def exchange(self, directive: Directive) -> EngineReport:
        """Accept a directive unless it is stale, and report. Returns once the table that holds is in force in every rank.

        It waits for a rank that is slow: the report is late then. One that has died is found by `watch`.

        Raises:
            ValueError: if the directive names a depth that is no candidate.
        """
        unknown = set(directive.table.depth_by_batch.values()) - set(self.spec.candidate_depths)
        if unknown:
            raise ValueError(f"{self.spec.name}: depths {sorted(unknown)} are not among {list(self.spec.candidate_depths)}")
        accepted = self._lease.accept(directive, time.monotonic())
        await self._follow_lease()
        return await self.report(accepted)

    async def watch(self) -> None:
        """Fall back whenever the lease runs out, for as long as the engine lives.

        Raises:
            RuntimeError: when a process of the engine has ended.
        """
        falling_back = asyncio.ensure_future(self._fall_back())
        try:
            while not falling_back.done():
                if ended := [process.pid for process in self.face.processes if _ended(process)]:
                    raise RuntimeError(f"{self.spec.name}: processes {ended} ended")
                await asyncio.sleep(_WATCH_EVERY_S)
            falling_back.result()
        finally:
            falling_back.cancel()

    async def _fall_back(self) -> None:
        while True:
            if self._lease.expire(time.monotonic()):
                await self._follow_lease()
            await asyncio.sleep(_WATCH_EVERY_S)

    async def _follow_lease(self) -> None:
        await self.put_in_force(self._lease.table)

    async def put_in_force(self, table: DepthTable) -> None:
        """Put a table in force in every rank, and return once each has it. This costs nothing while the table stays the same.

        Raises:
            RuntimeError: if the scheduler refuses the table.
        """
        async with self._changing:
            if table == self._in_force:
                return
            self._in_force = None  # unknown, until every rank has been read back
            self._revision += 1
            await self.face.put_in_force(table, self._revision)
            while behind := self._ranks_behind(await self.face.counters()):
                self._behind = behind
                await asyncio.sleep(_READ_BACK_EVERY_S)
            self._in_force = table

    def _ranks_behind(self, ranks: list[SharedCounters]) -> list[int]:
        return [rank for rank, counters in enumerate(ranks) if counters.revision != self._revision]

    async def counters(self) -> SharedCounters:
        """Those of rank 0, which speaks for the engine."""
        return (await self.face.counters())[0]

    async def report(self, accepted: bool) -> EngineReport:
        """What holds now. `accepted` is about the directive that the report answers."""
        ranks = await self.face.counters()
        in_flight = self.face.in_flight
        running = min(int(ranks[0].batch), in_flight)
        return EngineReport(
            engine=self.spec.name,
            incarnation=self.incarnation,
            accepted=accepted,
            applied=self._lease.applied(time.monotonic()),
            load=Load(
                running=running,
                waiting=in_flight - running,
                kv_usage=self.face.kv_usage,
            ),
            **counted(ranks),
        )


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
