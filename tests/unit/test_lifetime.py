"""When an engine ends itself, and that its guard ends all that it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil

from workers.lifetime import Lifetime


class Engine:
    """What a lifetime asks of an engine."""

    def __init__(self, requests: int = 0, controller: bool = False) -> None:
        self.requests, self.controller = requests, controller
        self.lifetime = Lifetime(10, 5, lambda: self.controller, lambda: self.requests, lambda: None)
        self.start = time.monotonic()

    def check(self, after_s: float) -> bool:
        return self.lifetime.check(self.start + after_s)


def test_an_idle_orphan_ends_at_once() -> None:
    engine = Engine()
    assert [engine.check(s) for s in (0, 9.9, 10.1)] == [False, False, True]


def test_an_orphan_finishes_its_requests_within_its_deadline() -> None:
    engine = Engine(requests=1)
    assert [engine.check(s) for s in (9.9, 10.1, 15.0, 15.2)] == [False, False, False, True]
    assert engine.lifetime.draining
    engine = Engine(requests=1)
    engine.check(10.1)
    engine.requests = 0
    assert engine.check(10.6)


def test_a_controller_that_calls_late_is_no_reason_to_end() -> None:
    engine = Engine(controller=True)
    assert not engine.check(10.1)
    assert not engine.lifetime.draining


def test_a_controller_that_comes_back_ends_the_draining() -> None:
    engine = Engine(requests=1)
    engine.check(10.1)
    engine.lifetime.heard()
    assert not engine.lifetime.draining


ACTOR = """
import signal, subprocess, sys, time
from workers.lifetime import Guard, lead_a_process_group
lead_a_process_group()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
guard = Guard(0.5)
print(child.pid, guard._process.pid, flush=True)
while True:
    guard.pet()
    time.sleep(0.1)
"""


def _ended_after(action: signal.Signals) -> float:
    """Seconds from a signal to an actor, whose child is stopped, until all its processes are gone."""
    actor = subprocess.Popen([sys.executable, "-c", ACTOR], stdout=subprocess.PIPE, text=True)
    assert actor.stdout
    processes = [psutil.Process(int(pid)) for pid in (actor.pid, *actor.stdout.readline().split())]
    time.sleep(0.8)
    assert all(process.is_running() for process in processes), "ended although it did not hang"
    processes[1].suspend()
    began = time.monotonic()
    actor.send_signal(action)
    actor.wait(10)
    psutil.wait_procs(processes, timeout=5)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)
    return time.monotonic() - began


def test_the_guard_ends_what_a_dead_actor_leaves() -> None:
    assert _ended_after(signal.SIGKILL) < 3


def test_the_guard_ends_a_stopped_actor() -> None:
    assert 0.2 < _ended_after(signal.SIGSTOP) < 5
