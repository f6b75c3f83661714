import pickle

from cluster.messages.report import Load
from cluster.messages.status import EngineStatus, FleetStatus
from cluster.routing.snapshot import PackedSnapshot, Snapshot
from tests.unit.builders import facts, report, steps

LOAD = Load(running=3, waiting=1, kv_usage=0.5)
STARTING = EngineStatus(name="b", actor="", state="starting", detail="loading", gpus=1)


def fleet(rows: int) -> FleetStatus:
    """One engine that serves and has run at this many batch sizes, and one that starts."""
    ran = report("a", load=LOAD, steps=steps(*((3, batch, 1, 1, 0.01) for batch in range(1, rows + 1))))
    known = facts(max_running=8)
    serving = EngineStatus(name="a", actor="a-1", state="serving", gpus=1, facts=known, report_age_s=0.2, report=ran)
    return FleetStatus(mode="auto", controller=1, namespace="n", served_model_name="tiny", engines=(serving, STARTING))


def test_it_tells_where_requests_can_go() -> None:
    snapshot = Snapshot.of(fleet(1))
    assert (snapshot.namespace, snapshot.served_model_name) == ("n", "tiny")
    (engine,) = snapshot.serving
    assert (engine.name, engine.actor, engine.max_running) == ("a", "a-1", 8)
    assert (engine.load, engine.report_age_s) == (LOAD, 0.2)


def test_it_tells_why_an_engine_takes_no_requests() -> None:
    engine = Snapshot.of(fleet(1)).engines[1]
    assert (engine.state, engine.detail, engine.max_running, engine.load) == ("starting", "loading", None, None)


def test_it_does_not_grow_with_what_engines_report() -> None:
    assert len(pickle.dumps(Snapshot.of(fleet(200)))) == len(pickle.dumps(Snapshot.of(fleet(1))))


def test_it_is_the_same_after_packing() -> None:
    snapshot = Snapshot.of(fleet(1))
    assert PackedSnapshot(age_s=0.1, content=snapshot.pack()).unpack() == snapshot
