"""What is used of Ray's insides, on the installed Ray: an upgrade that breaks it fails here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
import ray
from ray import serve
from ray.util import list_named_actors

from cluster.control.ray_internals import is_placed, pids, replica_prefix


@ray.remote(num_cpus=0)
class Idle:
    def pid(self) -> int:
        return os.getpid()


@serve.deployment(name="Deployment", ray_actor_options={"num_cpus": 0})
class Deployment:
    def pid(self) -> int:
        return os.getpid()


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    ray.init(num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False)
    yield
    serve.shutdown()
    ray.shutdown()


def test_an_actor_is_placed_once_it_has_a_node() -> None:
    placed, waiting = Idle.options(num_gpus=1).remote(), Idle.options(num_gpus=2).remote()
    ray.get(placed.pid.remote())
    assert is_placed(placed)
    assert not is_placed(waiting)


def test_processes_are_found_by_the_actors_name_while_they_live() -> None:
    actor = Idle.options(name="engine-0-abc").remote()
    pid = ray.get(actor.pid.remote())
    assert pids("engine-0") == [pid]
    assert pids("engine-1") == []
    ray.kill(actor)
    deadline = time.monotonic() + 60
    while pids("engine-0"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_replicas_have_the_names_that_are_assumed() -> None:
    serve.start(proxy_location="Disabled")
    handle = serve.run(Deployment.bind(), name="app", route_prefix=None)
    prefix = replica_prefix("app", "Deployment")
    assert pids(prefix) == [handle.pid.remote().result()]
    (name,) = [actor["name"] for actor in list_named_actors(all_namespaces=True) if actor["name"].startswith(prefix)]
    assert name != prefix
