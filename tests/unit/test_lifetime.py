"""When an engine ends itself."""

from __future__ import annotations

import time

from workers.lifetime import Lifetime


class Engine:
    """An engine with requests, and its lifetime."""

    def __init__(self, requests: int = 0, controller: bool = False) -> None:
        self.draining, self.in_flight = False, requests
        self.lifetime = Lifetime(10, 5, self, lambda: controller, lambda: None)
        self.start = time.monotonic()

    def check(self, after_s: float) -> bool:
        return self.lifetime.check(self.start + after_s)


def test_an_idle_orphan_ends_at_once() -> None:
    engine = Engine()
    assert [engine.check(s) for s in (0, 9.9, 10.1)] == [False, False, True]


def test_an_orphan_finishes_its_requests_within_its_deadline() -> None:
    engine = Engine(requests=1)
    assert [engine.check(s) for s in (9.9, 10.1, 15.0, 15.2)] == [False, False, False, True]
    assert engine.draining
    engine = Engine(requests=1)
    engine.check(10.1)
    engine.in_flight = 0
    assert engine.check(10.6)


def test_a_controller_that_calls_late_is_no_reason_to_end() -> None:
    engine = Engine(controller=True)
    assert not engine.check(10.1)
    assert not engine.draining


def test_a_controller_that_comes_back_ends_the_draining() -> None:
    engine = Engine(requests=1)
    engine.check(10.1)
    engine.lifetime.heard()
    assert not engine.draining
