"""Retry, queue and deadlines, with engines that fail as told."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from cluster.messages import request_socket
from cluster.messages.answer import EVENT_STREAM, ResponseHead
from cluster.messages.errors import ApiError
from cluster.messages.hello import EngineHello
from cluster.messages.report import Load
from cluster.messages.request_socket import Address
from cluster.routing.deadline import Deadline
from cluster.routing.snapshot import EngineSnapshot, Snapshot
from serve_app.error_responses import RequestError
from serve_app.ingress_settings import IngressSettings
from serve_app.relay import addresses, sse
from serve_app.relay import relay as relay_module
from serve_app.relay.fleet_view import FleetView
from serve_app.relay.relay import Relay
from tests.unit.builders import spec

PLAIN = json.dumps({"model": "tiny", "prompt": "a"}).encode()
STREAM = json.dumps({"model": "tiny", "prompt": "a", "stream": True}).encode()
HEAD, STREAM_HEAD = ResponseHead(), ResponseHead(media_type=EVENT_STREAM)
DONE = sse.DONE

LOST = object()
KEY = "key"


class Engine:
    """Answers each request by the next of its scripts: pieces to send, seconds to wait, or to be lost."""

    def __init__(self, *scripts: list[Any], unavailable: Exception | None = None) -> None:
        self.scripts = list(scripts)
        self.asked = 0
        self._left = asyncio.Event()
        self.hello = SimpleNamespace(remote=self._hello)
        self._unavailable = unavailable

    async def was_asked(self) -> None:
        """Return once a request has come in."""
        while not self.asked:
            await asyncio.sleep(0.001)

    async def was_left(self) -> bool:
        """Whether the connection of a request ended before its answer."""
        return await asyncio.wait_for(self._left.wait(), 60)

    async def _hello(self) -> EngineHello:
        if self._unavailable:
            self.asked += 1
            raise self._unavailable
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        address = Address(host="127.0.0.1", port=self._server.sockets[0].getsockname()[1], key=KEY)
        return EngineHello(spec=spec(), address=address)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_socket.read_request(reader, KEY)
        self.asked += 1
        for item in self.scripts.pop(0):
            if item is LOST:
                break
            if isinstance(item, float):
                done, _ = await asyncio.wait((asyncio.ensure_future(reader.read()),), timeout=item)
                if done:
                    self._left.set()
                    break
            else:
                writer.write(request_socket.frame(item))
        else:
            writer.write(request_socket.END)
        writer.close()


def serving(name: str, running: int = 0, max_running: int = 8) -> EngineSnapshot:
    load = Load(running=running, waiting=0, kv_usage=0.0)
    return EngineSnapshot(name=name, actor=name, state="serving", max_running=max_running, load=load, report_age_s=0.0)


def fleet(*engines: EngineSnapshot) -> Snapshot:
    return Snapshot(namespace="n", served_model_name="tiny", engines=engines)


Made = Callable[..., Relay]


@pytest.fixture
def deadlines(monkeypatch: pytest.MonkeyPatch) -> list[Deadline]:
    """Those of all requests, so that a test can end the time of one."""
    kept: list[Deadline] = []

    def keep(seconds: float) -> Deadline:
        kept.append(Deadline(seconds))
        return kept[-1]

    monkeypatch.setattr(relay_module, "Deadline", keep)
    return kept


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    def make(settings: dict[str, Any] | None = None, max_running: int = 8, **engines: Engine | None) -> Relay:
        def get_actor(name: str, _: str) -> Engine:
            engine = engines[name]
            if engine is None:
                raise ValueError(name)
            return engine

        monkeypatch.setattr(addresses.ray, "get_actor", get_actor)
        relay = Relay(FleetView(controller=None, metrics=SimpleNamespace()))
        relay.configure(IngressSettings(**{"queue_timeout_s": 0.2, **(settings or {})}))
        # The first named is the emptiest, so it is asked first.
        snapshots = [serving(name, running=i, max_running=max_running) for i, name in enumerate(engines)]
        relay._fleet.update(fleet(*snapshots), time.monotonic())
        return relay

    return make


async def ask(relay: Relay, body: bytes = PLAIN, **options: Any) -> bytes:
    head, pieces = await relay.answer("completions", body, **options)
    streamed = head.media_type == EVENT_STREAM
    return b"".join([piece async for piece in (sse.with_error_event(pieces) if streamed else pieces)])


async def refused(relay: Relay, body: bytes = PLAIN, **options: Any) -> ApiError:
    with pytest.raises(RequestError) as caught:
        await ask(relay, body, **options)
    return caught.value.error


def quiet(relay: Relay) -> bool:
    view = relay._fleet
    return not any(view._router.in_flight.values()) and len(view._queue) == 0


async def one_waits(relay: Relay) -> None:
    while not len(relay._fleet._queue):
        await asyncio.sleep(0)


GOING = ApiError(status=503, message="draining")
LOSSES: list[Any] = [
    pytest.param(lambda: Engine([LOST]), id="died"),
    pytest.param(lambda: Engine(unavailable=ActorDiedError()), id="dead"),
    pytest.param(lambda: Engine(unavailable=ActorUnavailableError("restarting", None)), id="unavailable"),
    pytest.param(lambda: Engine([GOING]), id="draining"),
    pytest.param(lambda: None, id="gone"),
]


@pytest.mark.parametrize("first", LOSSES)
async def test_an_engine_lost_before_the_first_token_is_replaced_by_another(made: Made, first: Callable[[], Any]) -> None:
    relay = made(first=first(), second=Engine([HEAD, b"text"]))
    assert await ask(relay) == b"text"
    assert quiet(relay)


async def test_an_engine_whose_address_is_out_of_date_is_lost(made: Made) -> None:
    engine = Engine([HEAD, b"text"])
    relay = made(a=engine)
    assert await ask(relay) == b"text"
    engine._server.close()
    await engine._server.wait_closed()
    assert (await refused(relay)).code == "engine_lost"
    assert quiet(relay)


async def test_only_once(made: Made) -> None:
    engines = {name: Engine([LOST]) for name in "abc"}
    relay = made(**engines)
    error = await refused(relay)
    assert (error.status, error.code, error.type) == (502, "engine_lost", "server_error")
    assert sum(engine.asked for engine in engines.values()) == 2
    assert quiet(relay)


async def test_with_no_other_engine_the_loss_is_reported(made: Made) -> None:
    assert (await refused(made(a=Engine([LOST])))).status == 502


async def test_after_the_first_token_a_stream_tells_of_the_loss_and_is_not_done(made: Made) -> None:
    other = Engine()
    relay = made(a=Engine([STREAM_HEAD, b'data: {"choices":[]}\n\n', LOST]), b=other)
    answer = await ask(relay, STREAM)
    *_, event, end = answer.split(b"\n\n")
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == "engine_lost"
    assert end == b""
    assert DONE not in answer
    assert other.asked == 0
    assert quiet(relay)


@pytest.mark.parametrize("end", [[], [ApiError(status=502, message="broke")]], ids=["silent", "told"])
async def test_a_stream_that_stops_short_says_so(made: Made, end: list[Any]) -> None:
    answer = await ask(made(a=Engine([STREAM_HEAD, b"data: {}\n\n", *end])), STREAM)
    assert b'"error"' in answer
    assert DONE not in answer


async def test_a_whole_stream_passes_as_it_is(made: Made) -> None:
    assert await ask(made(a=Engine([STREAM_HEAD, b"data: {}\n\n", DONE])), STREAM) == b"data: {}\n\n" + DONE


async def test_a_plain_answer_that_breaks_off_is_an_error(made: Made) -> None:
    assert (await refused(made(a=Engine([HEAD, b"ha", LOST])))).status == 502


async def test_a_refusal_of_the_engine_is_passed_on_and_not_tried_again(made: Made) -> None:
    engine, other = Engine([ApiError(status=400, message="no", param="n")]), Engine()
    relay = made(a=engine, b=other)
    assert (await refused(relay)).param == "n"
    assert other.asked == 0
    assert quiet(relay)


async def test_a_deadline_ends_a_plain_request_in_the_engine(made: Made, deadlines: list[Deadline]) -> None:
    engine = Engine([600.0])
    relay = made(a=engine)
    asking = asyncio.create_task(refused(relay))
    await engine.was_asked()
    deadlines[0]._expire()
    error = await asking
    assert (error.status, error.code) == (504, "deadline_exceeded")
    assert await engine.was_left()
    assert quiet(relay)


async def test_a_deadline_ends_a_stream_by_an_event(made: Made, deadlines: list[Deadline]) -> None:
    engine = Engine([STREAM_HEAD, b"data: {}\n\n", 600.0, DONE])
    relay = made(a=engine)
    _, pieces = await relay.answer("completions", STREAM)
    stream = sse.with_error_event(pieces)
    assert await anext(stream) == b"data: {}\n\n"
    deadlines[0]._expire()
    (event,) = [piece async for piece in stream]
    assert b"deadline_exceeded" in event
    assert await engine.was_left()
    assert quiet(relay)


async def test_deadlines_are_bounded_and_have_a_default(made: Made) -> None:
    for settings, asked in [({"default_timeout_s": 0.05}, None), ({"max_timeout_s": 0.05, "default_timeout_s": 0.01}, 100)]:
        assert (await refused(made(settings, a=Engine([600.0])), timeout_s=asked)).status == 504


async def test_a_deadline_holds_in_the_queue_too(made: Made) -> None:
    engine = Engine([HEAD, 600.0])
    relay = made({"max_in_flight": 1, "queue_timeout_s": 600}, a=engine)
    running = asyncio.create_task(ask(relay))
    await engine.was_asked()
    assert (await refused(relay, timeout_s=0.05)).status == 504
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert quiet(relay)


async def test_a_client_that_goes_away_ends_its_request(made: Made) -> None:
    for script in ([600.0], [STREAM_HEAD, b"data: {}\n\n", 600.0]):
        engine = Engine(script)
        relay = made(a=engine)
        asking = asyncio.create_task(ask(relay, STREAM))
        await engine.was_asked()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await engine.was_left()
        assert quiet(relay)


async def test_a_stream_that_nobody_reads_on_is_ended(made: Made) -> None:
    engine = Engine([STREAM_HEAD, b"data: {}\n\n", 600.0])
    relay = made(a=engine)
    _, pieces = await relay.answer("completions", STREAM)
    del pieces
    assert await engine.was_left()
    assert quiet(relay)


async def test_a_full_fleet_lets_wait_and_then_refuses(made: Made) -> None:
    settings = {"max_in_flight": 2, "queue_length": 2, "queue_timeout_s": 600}
    relay = made(settings, a=Engine(*[[HEAD, b"text"]] * 4))
    answers = await asyncio.gather(*(ask(relay) for _ in range(6)), return_exceptions=True)
    refusals = [answer.error for answer in answers if isinstance(answer, RequestError)]
    assert [answer for answer in answers if answer == b"text"] == [b"text"] * 4
    assert [(error.status, error.code) for error in refusals] == [(429, "fleet_full")] * 2
    assert all(error.retry_after_s for error in refusals)
    assert quiet(relay)


async def test_waiting_is_bounded_in_time(made: Made) -> None:
    engine = Engine([HEAD, 600.0])
    relay = made({"max_in_flight": 1, "queue_timeout_s": 0.05}, a=engine)
    running = asyncio.create_task(ask(relay))
    await engine.was_asked()
    assert (await refused(relay)).status == 429
    running.cancel()


async def test_who_waits_is_served_when_another_engine_comes(made: Made) -> None:
    first = Engine([HEAD, 600.0])
    relay = made({"max_in_flight": 1, "queue_timeout_s": 600}, a=first, b=Engine([HEAD, b"text"]))
    relay._fleet.update(fleet(serving("a")), time.monotonic())
    running = asyncio.create_task(ask(relay))
    await first.was_asked()
    waiting = asyncio.create_task(ask(relay))
    await one_waits(relay)
    relay._fleet.update(fleet(serving("a", running=1), serving("b")), time.monotonic())
    assert await waiting == b"text"
    running.cancel()


async def test_a_request_outlasts_a_moment_without_engines(made: Made) -> None:
    relay = made({"queue_timeout_s": 600}, a=Engine([HEAD, b"text"]))
    relay._fleet.update(fleet(), time.monotonic())
    waiting = asyncio.create_task(ask(relay))
    await one_waits(relay)
    relay._fleet.update(fleet(serving("a")), time.monotonic())
    assert await waiting == b"text"


async def test_no_engine_is_a_503(made: Made) -> None:
    relay = made()
    error = await refused(relay)
    assert (error.status, error.code) == (503, "no_engine")
    assert error.retry_after_s


@pytest.mark.parametrize("by", ["header", "user", "prompt_cache_key", "prefix"])
async def test_what_belongs_together_goes_to_one_engine(made: Made, by: str) -> None:
    engines = {name: Engine(*[[HEAD, b"text"]] * 40) for name in "abcd"}
    relay = made(max_running=1000, **engines)
    for i in range(40):
        body: dict[str, Any] = {"prompt": f"{i}"}
        if by == "prefix":
            body["prompt"] = "x" * 1024 + f"{i}"
        elif by != "header":
            body[by] = "someone"
        await ask(relay, json.dumps(body).encode(), session="someone" if by == "header" else None)
    assert sorted(engine.asked for engine in engines.values()) == [0, 0, 0, 40]


async def test_what_does_not_is_spread(made: Made) -> None:
    engines = {name: Engine(*[[HEAD, b"text"]] * 200) for name in "ab"}
    relay = made(max_running=1000, **engines)
    for i in range(200):
        await ask(relay, json.dumps({"prompt": "x" * 1000, "user": f"user {i}"}).encode())
    assert min(Counter({name: engine.asked for name, engine in engines.items()}).values()) > 60
