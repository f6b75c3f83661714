import time
from collections import Counter
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from cluster.messages.report import Load
from cluster.routing.router import AFFINITY_BOUND, AFFINITY_SLACK, SLOTS_PER_RUNNING, STALE_S, Router, Slot
from cluster.routing.snapshot import EngineSnapshot
from tests.unit.builders import routed


def engine(actor: str, running: int = 0, waiting: int = 0, max_running: int = 8, age_s: float = 0.0) -> EngineSnapshot:
    load = Load(running=running, waiting=waiting, kv_usage=0.0)
    return EngineSnapshot(name=actor, actor=actor, state="serving", max_running=max_running, load=load, report_age_s=age_s)


def router(*engines: EngineSnapshot) -> Router:
    made = Router(seed=1)
    made.observe(engines, time.monotonic())
    return made


def actor(slot: Slot | None) -> str:
    assert slot is not None
    return slot.engine.actor


def test_the_emptier_of_two_takes_the_request() -> None:
    assert actor(router(engine("a", running=3), engine("b", running=1, waiting=1)).reserve(routed())) == "b"


def test_an_engine_of_twice_the_size_takes_twice_as_much() -> None:
    assert actor(router(engine("a", running=3, max_running=16), engine("b", running=2)).reserve(routed())) == "a"


def test_a_burst_between_two_reports_is_spread() -> None:
    engines = router(engine("a"), engine("b"))
    assert Counter(actor(engines.reserve(routed())) for _ in range(6)) == {"a": 3, "b": 3}


def test_two_choices_keep_many_engines_even() -> None:
    engines = router(*(engine(f"e{i}", max_running=1000) for i in range(20)))
    taken = Counter(actor(engines.reserve(routed())) for _ in range(2000))
    assert max(taken.values()) - min(taken.values()) < 15, taken


def test_what_was_sent_since_the_report_counts_beside_it() -> None:
    engines = router(engine("a", running=2), engine("b", running=3))
    assert [actor(engines.reserve(routed())) for _ in range(2)].count("a") >= 1
    assert actor(engines.reserve(routed())) in "ab"
    assert sum(engines.in_flight.values()) == 3


def test_a_request_is_not_counted_twice_once_it_is_reported() -> None:
    engines = router(engine("a"))
    engines.reserve(routed())
    engines.observe([engine("a", running=1), engine("b", running=2)], time.monotonic())
    assert actor(engines.reserve(routed())) == "a"


def test_a_request_that_ended_after_the_report_counts_no_more() -> None:
    engines = router(engine("a", running=4), engine("b", running=4))
    slot = engines.reserve(routed())
    engines.observe([engine("a", running=5), engine("b", running=5)], time.monotonic())
    assert slot is not None
    engines.release(slot)
    assert actor(engines.reserve(routed())) == actor(slot)


def test_requests_of_other_ingress_replicas_count() -> None:
    engines = router(engine("b"))
    engines.reserve(routed())
    engines.observe([engine("a", running=5), engine("b", running=1)], time.monotonic())
    assert actor(engines.reserve(routed())) == "b"


def test_an_old_report_says_nothing() -> None:
    engines = Router(seed=1)
    engines.observe([engine("a", running=8), engine("b")], time.monotonic() - STALE_S - 1)
    assert {actor(engines.reserve(routed())), actor(engines.reserve(routed()))} == {"a", "b"}


def test_a_full_fleet_has_no_slot_until_one_is_released() -> None:
    engines = router(engine("a", max_running=2), engine("b", max_running=2))
    slots = [engines.reserve(routed()) for _ in range(6)]
    assert engines.reserve(routed()) is None
    assert slots[0] is not None
    engines.release(slots[0])
    assert actor(engines.reserve(routed())) == actor(slots[0])


def test_the_bound_can_be_configured_and_counts_answers() -> None:
    engines = router(engine("a"))
    assert engines.reserve(routed(samples=3), max_in_flight=3)
    assert engines.reserve(routed(), max_in_flight=3) is None
    assert engines.reserve(routed(), max_in_flight=4)


def test_without_an_engine_there_is_no_slot() -> None:
    assert router().reserve(routed()) is None
    assert router(engine("a")).reserve(routed(), excluded=["a"]) is None


def test_an_excluded_engine_is_passed_over() -> None:
    assert actor(router(engine("a"), engine("b", running=7)).reserve(routed(), excluded=["a"])) == "b"


def test_affinity_is_the_same_in_every_router_and_spreads() -> None:
    engines = [engine(f"e{i}", max_running=10_000) for i in range(4)]
    one, other = router(*engines), Router(seed=2)
    other.observe(engines[::-1], time.monotonic())
    keys = [f"session {i}".encode() for i in range(400)]
    taken = [actor(one.reserve(routed(affinity=key))) for key in keys]
    assert taken == [actor(other.reserve(routed(affinity=key))) for key in keys]
    assert all(60 < count < 140 for count in Counter(taken).values()), Counter(taken)


def test_an_engine_that_leaves_moves_only_its_own_sessions() -> None:
    engines = [engine(f"e{i}", max_running=10_000) for i in range(4)]
    before, after = router(*engines), router(*engines[1:])
    for i in range(200):
        home = actor(before.reserve(routed(affinity=b"%d" % i)))
        moved = actor(after.reserve(routed(affinity=b"%d" % i)))
        assert moved == home or home == "e0"


def test_affinity_yields_to_overload_and_comes_back() -> None:
    near = router(*(engine(name, max_running=64) for name in "abcd"))
    home = actor(near.reserve(routed(affinity=b"s")))
    slots = [near.reserve(routed(affinity=b"s")) for _ in range(100)]
    assert Counter(map(actor, slots))[home] < 0.25 * 101 * AFFINITY_BOUND + AFFINITY_SLACK * 64 + 1
    for slot in slots:
        assert slot is not None
        near.release(slot)
    assert actor(near.reserve(routed(affinity=b"s"))) == home


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=8), st.binary(max_size=8))
def test_affinity_finds_a_slot_wherever_there_is_one(loads: list[tuple[int, int]], key: bytes) -> None:
    engines = [engine(f"e{i}", running=running, max_running=most) for i, (running, most) in enumerate(loads)]
    anywhere = any(running < ceil(SLOTS_PER_RUNNING * most) for running, most in loads)
    assert (router(*engines).reserve(routed(affinity=key)) is not None) == anywhere


def test_slots_can_be_released_after_their_engine_has_gone() -> None:
    engines = router(engine("a"))
    slot = engines.reserve(routed())
    engines.observe([], time.monotonic())
    assert engines.in_flight == {"a": 1}
    assert slot is not None
    engines.release(slot)
    engines.observe([], time.monotonic())
    assert engines.in_flight == {}
