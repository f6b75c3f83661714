"""The controller as a Ray Serve deployment: exactly one replica, so that no two ever argue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import ray
from ray import serve

from cluster.control.controller import Controller
from cluster.control.fleet import Fleet
from cluster.messages.settings import ControllerSettings, Mode
from cluster.messages.spec import GroupSpec
from cluster.messages.status import FleetStatus
from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.routing.snapshot import Snapshot
from workers.actor import EngineActor

_LOG = logging.getLogger(__name__)


# Snapshots are fetched several times a second: an access log of them would bury all else.
@serve.deployment(
    name="Controller",
    num_replicas=1,
    max_ongoing_requests=1000,
    user_config={},
    logging_config={"enable_access_log": False},
)
class ControllerDeployment:
    """Runs the controller's loop in its replica."""

    def __init__(self, groups: Sequence[GroupSpec], served_model_name: str) -> None:
        app_name = serve.get_replica_context().app_name
        # Serve names its replicas' actors ...#APP#DEPLOYMENT#UNIQUE; what comes before the last part is any controller's.
        replicas = ray.get_runtime_context().get_actor_name().rsplit("#", 1)[0]
        fleet = Fleet(EngineActor, groups, namespace=f"specfleet-{app_name}", controller=replicas)
        self._controller = Controller(fleet, served_model_name, measured=MeasuredDepthPolicy())
        self._running: asyncio.Task[None] | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Follow a new `user_config`.

        A wrong one is refused: the one before holds on, and `GET /fleet` says why. It raises only when there is none
        before, since Serve answers an error here by replacing this replica again and again, and the fleet would have no
        controller.
        """
        try:
            self._controller.configure(ControllerSettings.model_validate(user_config))
            self._controller.refused = ""
        except ValueError as error:
            if self._running is None:
                raise
            self._controller.refused = str(error)
            _LOG.error("user_config refused: %s", error)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._controller.run())

    def check_health(self) -> None:
        """Let Serve replace a replica whose loop has ended: it never should."""
        if self._running is not None and self._running.done():
            self._running.result()

    async def status(self) -> FleetStatus:
        return self._controller.status()

    async def snapshot(self) -> Snapshot:
        return Snapshot.of(self._controller.status())

    async def set_mode(self, mode: Mode) -> None:
        self._controller.set_mode(mode)
