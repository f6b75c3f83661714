"""The engine actors: creates those that are wanted, adopts those that live, removes the others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util import list_named_actors

from cluster.spec import EngineSpec

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """A wanted engine and the handle of its actor."""

    spec: EngineSpec
    handle: Any


class Fleet:
    """Named, detached actors in one namespace: they outlive the controller, and the next one adopts them."""

    def __init__(self, actor_class: Any, specs: Sequence[EngineSpec], namespace: str) -> None:
        self._actor_class = actor_class
        self._specs = {spec.actor_name: spec for spec in specs}
        self.namespace = namespace

    def reconcile(self) -> dict[str, Member]:
        """Remove what is not wanted, then adopt or create what is. Returns the members by actor name.

        Unwanted engines go first, so that their GPUs are free for the new ones.
        """
        for actor in list_named_actors(all_namespaces=True):
            if actor["namespace"] == self.namespace and actor["name"] not in self._specs:
                _LOG.warning("removing engine %s: it is not in the configuration", actor["name"])
                ray.kill(ray.get_actor(actor["name"], self.namespace), no_restart=True)
        return {name: Member(spec, self._adopt_or_create(name, spec)) for name, spec in self._specs.items()}

    def replace(self, member: Member) -> Member:
        """Create the actor of a member anew after it died for good."""
        return Member(member.spec, self._adopt_or_create(member.spec.actor_name, member.spec))

    def missing_gpus(self) -> float:
        """GPUs that the engines want beyond what the cluster has."""
        return missing_gpus(list(self._specs.values()))

    def _adopt_or_create(self, name: str, spec: EngineSpec) -> Any:
        options = self._actor_class.options(
            name=name,
            namespace=self.namespace,
            lifetime="detached",
            get_if_exists=True,
            num_gpus=spec.num_gpus,
            num_cpus=0,
            runtime_env={"env_vars": spec.environment},
        )
        return options.remote(spec)


def missing_gpus(specs: Sequence[EngineSpec]) -> float:
    """GPUs that `specs` want beyond what the cluster has in all."""
    present: float = ray.cluster_resources().get("GPU", 0.0)
    return max(0.0, sum(spec.num_gpus for spec in specs) - present)
