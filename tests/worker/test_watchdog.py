"""The watchdog of an engine's actor ends all that the actor has started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil

ACTOR = """
import signal, subprocess, sys, time
from workers.lifetime import Watchdog, lead_a_process_group
lead_a_process_group()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
watchdog = Watchdog(1.0)
print(child.pid, watchdog._process.pid, flush=True)
while True:
    watchdog.pet()
    time.sleep(0.1)
"""


def _ended_after(action: signal.Signals) -> float:
    """Seconds from a signal to an actor, whose child is stopped, until all its processes are gone."""
    actor = subprocess.Popen([sys.executable, "-c", ACTOR], stdout=subprocess.PIPE, text=True)
    assert actor.stdout
    processes = [psutil.Process(int(pid)) for pid in (actor.pid, *actor.stdout.readline().split())]
    time.sleep(1.5)
    assert all(process.is_running() for process in processes), "ended although it did not hang"
    processes[1].suspend()
    began = time.monotonic()
    actor.send_signal(action)
    actor.wait(10)
    psutil.wait_procs(processes, timeout=5)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)
    return time.monotonic() - began


def test_the_watchdog_ends_what_a_dead_actor_leaves() -> None:
    assert _ended_after(signal.SIGKILL) < 3


def test_the_watchdog_ends_a_stopped_actor() -> None:
    assert 0.5 < _ended_after(signal.SIGSTOP) < 5
