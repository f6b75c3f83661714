"""The engine actors in Ray: lists, finds, creates and kills them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
from ray.util import list_named_actors

from cluster.control.ray_internals import is_placed
from cluster.messages.engine_calls import EngineCalls
from cluster.messages.spec import EngineSpec, GroupSpec

_LOG = logging.getLogger(__name__)


class Fleet:
    """Named, detached actors in one namespace. They outlive the controller, and the next controller adopts them.

    Ray restarts none of them. Only the controller creates them again, so one place decides when, and says why.
    """

    def __init__(self, actor_class: Any, groups: Sequence[GroupSpec], namespace: str, controller: str) -> None:
        """`actor_class` is the class of the engines' actors. `controller` is the prefix of the names of controllers' actors: an
        engine looks for such a name to tell whether a controller lives."""
        self._actor_class = actor_class
        self._groups = {group.name: group for group in groups}
        self._controller = controller
        self.namespace = namespace

    def wanted(self, counts: Mapping[str, int]) -> dict[str, EngineSpec]:
        """Specs of all engines by name. `counts` replaces the number of engines of the groups in it.

        Raises:
            ValueError: for a group that does not exist.
        """
        if unknown := counts.keys() - self._groups.keys():
            raise ValueError(f"engines: there is no group {', '.join(sorted(unknown))}; the groups are {', '.join(self._groups)}")
        groups = self._groups.values()
        return {spec.name: spec for group in groups for spec in group.engines(counts.get(group.name, group.count))}

    def living(self) -> set[str]:
        """Names of the actors that live, are being created, or wait for a node."""
        return {actor["name"] for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == self.namespace}

    def find(self, actor: str) -> EngineCalls | None:
        """Handle of an actor; None if it has died."""
        try:
            handle: EngineCalls = ray.get_actor(actor, self.namespace)
        except ValueError:
            return None
        return handle

    def create(self, actor: str, spec: EngineSpec) -> EngineCalls:
        """Create an actor and return its handle. Ray places it on a node once there are GPUs for it."""
        _LOG.info("creating engine %s", actor)
        options = self._actor_class.options(
            name=actor,
            namespace=self.namespace,
            lifetime="detached",
            num_gpus=spec.num_gpus,
            num_cpus=0,
            runtime_env={"env_vars": spec.environment},
        )
        handle: EngineCalls = options.remote(spec, self._controller)
        return handle

    def kill(self, actor: str, why: str) -> None:
        """End an actor and all its processes, even if they are stopped. Does nothing if it is dead.

        Ray asks the process to end, sends it SIGKILL 5 s later, and then sends SIGKILL to all that it had started.
        """
        _LOG.warning("removing engine %s: %s", actor, why)
        if (handle := self.find(actor)) is not None:
            ray.kill(handle, no_restart=True)

    def shortage(self, handle: EngineCalls, gpus: int) -> str:
        """Why an actor has not been placed on a node yet; empty if it has been, or will be in a moment."""
        if not gpus or is_placed(handle):
            return ""
        largest = max((node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        if largest < gpus:
            return f"needs {gpus} GPUs on one node; the largest has {largest:g}"
        free, total = ray.available_resources().get("GPU", 0.0), ray.cluster_resources().get("GPU", 0.0)
        return f"needs {gpus} GPUs on one node; {free:g} of the cluster's {total:g} are free"


def missing_gpus(specs: Iterable[EngineSpec]) -> float:
    """How many more GPUs `specs` need than the cluster has."""
    present: float = ray.cluster_resources().get("GPU", 0.0)
    return max(0.0, sum(spec.num_gpus for spec in specs) - present)
