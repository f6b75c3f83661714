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
watchdog = Watchdog(float(sys.argv[1]))
print(child.pid, watchdog._process.pid, flush=True)
while True:
    watchdog.pet()
    time.sleep(0.1)
"""


def _ends(action: signal.Signals, patience_s: float, after_s: float) -> None:
    """Send a signal to an actor, whose child is stopped, `after_s` after its start; wait until all its processes are gone."""
    actor = subprocess.Popen([sys.executable, "-c", ACTOR, str(patience_s)], stdout=subprocess.PIPE, text=True)
    assert actor.stdout
    processes = [psutil.Process(int(pid)) for pid in (actor.pid, *actor.stdout.readline().split())]
    time.sleep(after_s)
    assert all(process.is_running() for process in processes), "ended although it did not hang"
    processes[1].suspend()
    actor.send_signal(action)
    actor.wait(120)
    psutil.wait_procs(processes, timeout=120)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_the_watchdog_ends_what_a_dead_actor_leaves() -> None:
    _ends(signal.SIGKILL, patience_s=3600, after_s=0)


def test_the_watchdog_ends_a_stopped_actor() -> None:
    _ends(signal.SIGSTOP, patience_s=5, after_s=6)
