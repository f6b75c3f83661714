"""The controller as a Ray Serve deployment. It has exactly one replica, so that no two decide for the same engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from ray import serve

from cluster.control.controller import Controller
from cluster.control.fleet import Fleet
from cluster.control.ray_internals import replica_prefix
from cluster.messages.settings import ControllerSettings, Mode
from cluster.messages.spec import GroupSpec
from cluster.messages.status import FleetStatus
from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.routing.snapshot import PackedSnapshot
from workers.actor import EngineActor

_LOG = logging.getLogger(__name__)

NAME = "Controller"


# Ingresses fetch snapshots several times a second. An access log of these would bury everything else.
@serve.deployment(
    name=NAME,
    num_replicas=1,
    max_ongoing_requests=1000,
    user_config={},
    logging_config={"enable_access_log": False},
)
class ControllerDeployment:
    """Runs the controller's loop in its replica."""

    def __init__(self, groups: Sequence[GroupSpec], served_model_name: str) -> None:
        app_name = serve.get_replica_context().app_name
        replicas = replica_prefix(app_name, NAME)
        fleet = Fleet(EngineActor, groups, namespace=f"specfleet-{app_name}", controller=replicas)
        self._controller = Controller(fleet, served_model_name, measured=MeasuredDepthPolicy())
        self._running: asyncio.Task[None] | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Put a new `user_config` in force.

        A wrong one is refused: the last one stays in force, and `GET /fleet` says why. Only the first one raises, since Serve
        replaces a replica that raises here, again and again, and the fleet would have no controller.
        """
        try:
            self._controller.configure(ControllerSettings.model_validate(user_config))
        except ValueError as error:
            if self._running is None:
                raise
            self._controller.refuse(str(error))
            _LOG.error("user_config refused: %s", error)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._controller.run())

    def check_health(self) -> None:
        """Let Serve replace a replica whose loop has ended, which is a bug."""
        if self._running is not None and self._running.done():
            self._running.result()

    async def status(self) -> FleetStatus:
        return self._controller.status()

    async def snapshot(self) -> PackedSnapshot:
        return self._controller.snapshot()

    async def set_mode(self, mode: Mode) -> None:
        self._controller.set_mode(mode)
