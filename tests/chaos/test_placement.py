"""What Ray does with engine actors that find no GPU, or that are stopped; with GPUs that it only counts, and idle actors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
import ray

from cluster.control.fleet import Fleet
from tests.unit.builders import spec


@ray.remote(max_restarts=0)
class Idle:
    def __init__(self, made_of: object, controller: str) -> None:
        self._child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def pids(self) -> tuple[int, int]:
        return os.getpid(), self._child.pid


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    ray.init(num_cpus=1, num_gpus=2, include_dashboard=False, log_to_driver=False)
    yield Fleet(Idle, [], namespace="specfleet-test", controller="none")
    ray.shutdown()


def eventually(true: Callable[[], bool], within_s: float = 20.0) -> float:
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + within_s
        time.sleep(0.05)
    return time.monotonic() - began


def test_an_engine_without_gpus_says_what_it_waits_for_until_it_has_them(fleet: Fleet) -> None:
    big, small, huge = (spec(name=f"{name}-0", tensor_parallel=gpus) for name, gpus in [("big", 2), ("small", 1), ("huge", 4)])
    first = fleet.create("first", big)
    ray.get(first.pids.remote())
    assert fleet.shortage(first, 2) == ""
    second, third = fleet.create("second", small), fleet.create("third", huge)
    eventually(lambda: fleet.shortage(second, 1) == "needs 1 GPUs on one node; 0 of the cluster's 2 are free")
    assert fleet.shortage(third, 4) == "needs 4 GPUs on one node; the largest has 2"
    assert fleet.living() == {"first", "second", "third"}
    fleet.kill("third", "it waits")
    fleet.kill("first", "make room")
    eventually(lambda: fleet.shortage(second, 1) == "")
    ray.get(second.pids.remote(), timeout=30)
    assert fleet.living() == {"second"}


def test_a_stopped_engine_is_ended_with_all_that_it_started_and_its_gpus_are_free(fleet: Fleet) -> None:
    engine = fleet.create("engine", spec(tensor_parallel=2))
    processes = [psutil.Process(pid) for pid in ray.get(engine.pids.remote())]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    fleet.kill("engine", "it hangs")
    assert fleet.find("engine") is None
    took = eventually(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes))
    eventually(lambda: ray.available_resources().get("GPU") == 2)
    print(f"\nkilled to gone, actor and child stopped: {took:.1f} s")
