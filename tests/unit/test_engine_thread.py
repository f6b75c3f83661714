"""An engine's way from its start to its end, without SGLang and without Ray."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.messages import request_socket
from cluster.messages.answer import Piece, ResponseHead
from cluster.messages.errors import ApiError
from cluster.messages.report import EngineReport, NotServing
from tests.unit.builders import directive, spec
from tests.unit.fake_engine import FakeEngine
from workers.engine_thread import EngineThread

WAIT_S = 60.0  # generous: only a broken engine takes so long


@pytest.fixture
def face(tmp_path: Path) -> Iterator[FakeEngine]:
    engine = FakeEngine(tmp_path)
    yield engine
    engine.shutdown()


class Running:
    """An engine's thread, and whether it has ended its process."""

    def __init__(self, face: FakeEngine, **fields: object) -> None:
        self.ended = threading.Event()
        self.thread = EngineThread(spec(candidate_depths=(0, 1, 3), **fields), face, "127.0.0.1", self.ended.set)

    async def answer(self, state: Callable[[EngineReport | NotServing], bool]) -> EngineReport | NotServing:
        """The first answer to a directive that is in this state."""

        async def wait() -> EngineReport | NotServing:
            while not state(answer := await self.thread.exchange(directive())):
                await asyncio.sleep(0.01)
            return answer

        return await asyncio.wait_for(wait(), WAIT_S)

    async def ask(self, body: bytes) -> list[Piece]:
        assert self.thread.hello.address is not None
        reader, writer = await request_socket.connect(self.thread.hello.address, "completions", body)
        pieces = []
        while (piece := await request_socket.read_piece(reader)) is not None:
            pieces.append(piece)
        writer.close()
        return pieces


def serves(answer: EngineReport | NotServing) -> bool:
    return isinstance(answer, EngineReport)


def failed(answer: EngineReport | NotServing) -> bool:
    return isinstance(answer, NotServing) and answer.state == "failed"


async def test_an_engine_tells_how_far_it_is_and_then_serves(face: FakeEngine) -> None:
    face.may_start.clear()
    running = Running(face)
    assert await running.thread.exchange(directive()) == NotServing(engine="engine-0", state="starting", detail="loading")
    await running.thread.check_health()
    assert (running.thread.hello.facts, running.thread.hello.address) == (None, None)
    assert (running.thread.in_flight, face.health_checks) == (0, 0)
    face.may_start.set()
    report = await running.answer(serves)
    assert isinstance(report, EngineReport)
    assert report.applied.source == "controller"
    facts = running.thread.hello.facts
    assert facts is not None
    assert (facts.candidate_depths, facts.batch_sizes, facts.max_running) == ((0, 1, 3), (1, 2, 4), 16)
    assert (facts.incarnation, facts.off) == (report.incarnation, "not at all")
    assert await running.ask(b"{}") == [ResponseHead(), b"completions {}"]
    await running.thread.check_health()
    face.in_flight = 3
    assert (running.thread.in_flight, face.health_checks) == (3, 1)


async def test_an_engine_that_drains_refuses_requests(face: FakeEngine) -> None:
    running = Running(face)
    await running.answer(serves)
    running.thread.draining = True
    (error,) = await running.ask(b"{}")
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (503, "no_engine")
    running.thread.draining = False
    assert len(await running.ask(b"{}")) == 2


@pytest.mark.parametrize(
    ("error", "detail"),
    [(RuntimeError("CUDA out of memory"), "CUDA out of memory"), (ValueError("no draft"), "ValueError: no draft")],
)
async def test_an_engine_that_does_not_start_says_why(face: FakeEngine, error: Exception, detail: str) -> None:
    face.fails = error
    answer = await Running(face).answer(failed)
    assert isinstance(answer, NotServing)
    assert answer.detail == detail


async def test_a_profile_that_does_not_exist_is_named(face: FakeEngine) -> None:
    answer = await Running(face, profile="h300").answer(failed)
    assert isinstance(answer, NotServing)
    assert "h300" in answer.detail


async def test_an_engine_whose_process_ends_during_the_preparation_has_failed(face: FakeEngine) -> None:
    face.deaf = {0}  # so that the preparation goes on for ever
    running = Running(face)
    await running.answer(lambda answer: isinstance(answer, NotServing) and "proving" in answer.detail)
    face.shutdown()
    answer = await running.answer(failed)
    assert isinstance(answer, NotServing)
    assert "ended" in answer.detail


async def test_an_engine_whose_process_ends_later_ends_its_own(face: FakeEngine) -> None:
    running = Running(face)
    await running.answer(serves)
    assert not running.ended.is_set()
    face.shutdown()
    assert await asyncio.to_thread(running.ended.wait, WAIT_S)
