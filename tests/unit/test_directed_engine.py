"""Directives, lease and watch, at an engine without SGLang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.messages.directive import DepthTable
from tests.unit.builders import directive, spec, table
from tests.unit.fake_engine import FakeEngine
from workers import directed_engine
from workers.directed_engine import DirectedEngine

WAIT_S = 60.0  # generous: only a broken engine takes so long
FALLBACK = DepthTable(enabled=False)


@pytest.fixture
def face(tmp_path: Path) -> Iterator[FakeEngine]:
    engine = FakeEngine(tmp_path, ranks=2)
    yield engine
    engine.shutdown()


@pytest.fixture
def engine(face: FakeEngine) -> DirectedEngine:
    return DirectedEngine(spec(candidate_depths=(0, 1, 3), tensor_parallel=2), face)


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), WAIT_S)


async def test_a_directive_is_in_force_in_every_rank_before_it_is_reported(face: FakeEngine, engine: DirectedEngine) -> None:
    await engine.prove_patch()
    face.deaf = {1}
    exchange = asyncio.ensure_future(engine.exchange(directive(depths={1: 3})))
    await until(lambda: len(face.tables) == 2)
    await asyncio.sleep(0.05)
    assert not exchange.done()
    with face.ranks[1].writing():
        face.ranks[1].revision[()] = 2
    report = await asyncio.wait_for(exchange, WAIT_S)
    assert report.accepted
    assert (report.applied.source, report.applied.table) == ("controller", table({1: 3}))
    assert [rank.revision for rank in report.ranks] == [2, 2]
    assert face.tables == [FALLBACK, table({1: 3})]


async def test_the_same_table_is_sent_once(face: FakeEngine, engine: DirectedEngine) -> None:
    await engine.exchange(directive(sequence=1))
    await engine.exchange(directive(sequence=2))
    assert face.tables == [table()]


async def test_a_stale_directive_is_refused(face: FakeEngine, engine: DirectedEngine) -> None:
    await engine.exchange(directive(sequence=2, depths={1: 3}))
    report = await engine.exchange(directive(sequence=1, depths={1: 1}))
    assert not report.accepted
    assert report.applied.table == table({1: 3}) == face.tables[-1]


async def test_a_depth_that_is_no_candidate_is_refused(face: FakeEngine, engine: DirectedEngine) -> None:
    with pytest.raises(ValueError, match=r"depths \[2\]"):
        await engine.exchange(directive(depths={1: 2}))
    assert not face.tables


async def test_a_table_that_the_scheduler_refused_is_sent_again(face: FakeEngine, engine: DirectedEngine) -> None:
    face.refuses = True
    with pytest.raises(RuntimeError, match="refused"):
        await engine.exchange(directive(sequence=1))
    face.refuses = False
    await engine.exchange(directive(sequence=2))
    assert face.tables == [table()]


async def test_after_an_exchange_that_was_given_up_the_old_table_is_sent_again(face: FakeEngine, engine: DirectedEngine) -> None:
    await engine.exchange(directive(sequence=1, depths={1: 1}))
    face.deaf = {1}
    given_up = asyncio.ensure_future(engine.exchange(directive(sequence=2, depths={1: 3})))
    await until(lambda: len(face.tables) == 2)
    given_up.cancel()
    await asyncio.wait([given_up])
    face.deaf = set()
    await engine.exchange(directive(sequence=3, depths={1: 1}))
    assert face.tables == [table({1: 1}), table({1: 3}), table({1: 1})]


async def test_the_fallback_is_in_force_after_the_lease(face: FakeEngine, engine: DirectedEngine) -> None:
    watching = asyncio.ensure_future(engine.watch())
    await engine.exchange(directive(depths={1: 3}, lease_s=0.2))
    await until(lambda: face.tables[-1] == FALLBACK)
    assert (await engine.report(accepted=True)).applied.source == "fallback"
    watching.cancel()


async def test_a_process_that_ends_is_found(face: FakeEngine, engine: DirectedEngine) -> None:
    watching = asyncio.ensure_future(engine.watch())
    await asyncio.sleep(0.05)
    assert not watching.done()
    face.shutdown()
    with pytest.raises(RuntimeError, match="ended"):
        await asyncio.wait_for(watching, WAIT_S)


async def test_a_process_that_ends_is_found_while_a_rank_is_waited_for(face: FakeEngine, engine: DirectedEngine) -> None:
    watching = asyncio.ensure_future(engine.watch())
    await engine.exchange(directive(lease_s=0.1))
    face.deaf = {1}
    await until(lambda: face.tables[-1] == FALLBACK)
    face.shutdown()
    with pytest.raises(RuntimeError, match="ended"):
        await asyncio.wait_for(watching, WAIT_S)


async def test_a_report_that_cannot_be_read_is_late(face: FakeEngine, engine: DirectedEngine) -> None:
    await engine.exchange(directive(sequence=1))
    with face.ranks[1].writing():
        exchange = asyncio.ensure_future(engine.exchange(directive(sequence=2)))
        await asyncio.sleep(0.1)
        assert not exchange.done()
    assert (await asyncio.wait_for(exchange, WAIT_S)).accepted


async def test_ranks_that_do_not_follow_their_first_table_are_named(
    face: FakeEngine, engine: DirectedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directed_engine, "PROOF_S", 0.1)
    face.deaf = {1}
    with pytest.raises(RuntimeError, match=r"not in force: ranks \[1\]"):
        await engine.prove_patch()


async def test_load_is_of_clients_requests(face: FakeEngine, engine: DirectedEngine) -> None:
    face.in_flight = 5
    face.ranks[0].batch[()] = 3
    load = (await engine.report(accepted=True)).load
    assert (load.running, load.waiting, load.kv_usage) == (3, 2, 0.25)
    face.in_flight = 1  # the last decode batch was larger
    load = (await engine.report(accepted=True)).load
    assert (load.running, load.waiting) == (1, 0)
