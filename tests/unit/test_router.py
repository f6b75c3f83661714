from contextlib import ExitStack

from cluster.protocol import Load
from cluster.router import Router
from cluster.status import EngineStatus
from tests.unit.builders import report


def status(actor: str, running: int = 0, waiting: int = 0) -> EngineStatus:
    load = Load(running=running, waiting=waiting, max_running=8, kv_usage=0.0)
    return EngineStatus(name=actor, actor=actor, state="serving", gpus=1, report=report(actor, load=load))


def test_the_least_loaded_engine_takes_the_request() -> None:
    assert Router().pick([status("a", running=3), status("b", running=1, waiting=1)]).actor == "b"


def test_a_burst_between_two_reports_is_spread() -> None:
    engines = [status("a"), status("b")]
    router = Router()
    taken = []
    with ExitStack() as in_flight:
        for _ in range(6):
            taken.append(router.pick(engines).actor)
            in_flight.enter_context(router.sent_to(taken[-1]))
    assert sorted(taken) == ["a", "a", "a", "b", "b", "b"]


def test_a_request_is_not_counted_twice_once_it_is_reported() -> None:
    router = Router()
    with router.sent_to("a"):
        assert router.pick([status("a", running=1), status("b", running=2)]).actor == "a"


def test_requests_of_other_ingress_replicas_count() -> None:
    router = Router()
    with router.sent_to("b"):
        assert router.pick([status("a", running=5), status("b", running=1)]).actor == "b"
