"""The engine actors as Ray has them: finds, creates and kills them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
from ray._private.state import actors  # ray.util.state has the same, but by way of the dashboard
from ray.util import list_named_actors

from cluster.messages.spec import EngineSpec, GroupSpec

_LOG = logging.getLogger(__name__)


class Fleet:
    """Named, detached actors in one namespace: they outlive the controller, and the next one adopts them.

    Ray restarts none of them: the controller does, so that one place decides when, and says why.
    """

    def __init__(self, actor_class: Any, groups: Sequence[GroupSpec], namespace: str, controller: str) -> None:
        """`controller` is what names of the controller's actors begin with, so that an engine can tell whether one lives."""
        self._actor_class = actor_class
        self._groups = {group.name: group for group in groups}
        self._controller = controller
        self.namespace = namespace

    def wanted(self, counts: Mapping[str, int]) -> dict[str, EngineSpec]:
        """Specs of all engines by name. `counts` replaces the number of engines of the groups in it.

        Raises:
            ValueError: for a group that there is not.
        """
        if unknown := counts.keys() - self._groups.keys():
            raise ValueError(f"engines: there is no group {', '.join(sorted(unknown))}; the groups are {', '.join(self._groups)}")
        groups = self._groups.values()
        return {spec.name: spec for group in groups for spec in group.engines(counts.get(group.name, group.count))}

    def living(self) -> set[str]:
        """Names of the actors that live, are being created, or wait for a place."""
        return {actor["name"] for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == self.namespace}

    def find(self, actor: str) -> Any:
        """Handle of an actor; None if it has died by now."""
        try:
            return ray.get_actor(actor, self.namespace)
        except ValueError:
            return None

    def create(self, actor: str, spec: EngineSpec) -> Any:
        """Create an actor and return its handle; it is placed once there are GPUs for it."""
        _LOG.info("creating engine %s", actor)
        options = self._actor_class.options(
            name=actor,
            namespace=self.namespace,
            lifetime="detached",
            num_gpus=spec.num_gpus,
            num_cpus=0,
            runtime_env={"env_vars": spec.environment},
        )
        return options.remote(spec, self._controller)

    def kill(self, actor: str, why: str) -> None:
        """End an actor and all its processes, even if they are stopped; nothing if it is dead.

        Ray asks the process to end, sends it SIGKILL 5 s later, and then SIGKILL to all that it had started.
        """
        _LOG.warning("removing engine %s: %s", actor, why)
        if (handle := self.find(actor)) is not None:
            ray.kill(handle, no_restart=True)

    def shortage(self, handle: Any, gpus: int) -> str:
        """Why an actor has not been placed on a node yet; empty if it has, or will be in a moment."""
        placed = actors(handle._actor_id.hex()).get("Address", {}).get("IPAddress")
        if placed or not gpus:
            return ""
        largest = max((node["Resources"].get("GPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        if largest < gpus:
            return f"needs {gpus} GPUs on one node; the largest has {largest:g}"
        free, total = ray.available_resources().get("GPU", 0.0), ray.cluster_resources().get("GPU", 0.0)
        return f"needs {gpus} GPUs on one node; {free:g} of the cluster's {total:g} are free"


def missing_gpus(specs: Iterable[EngineSpec]) -> float:
    """GPUs that `specs` want beyond what the cluster has in all."""
    present: float = ray.cluster_resources().get("GPU", 0.0)
    return max(0.0, sum(spec.num_gpus for spec in specs) - present)
