"""The controller as a Ray Serve deployment: exactly one replica, so that no two ever argue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ray import serve

from cluster.controller import Controller
from cluster.fleet import Fleet
from cluster.goodput import GoodputPolicy
from cluster.settings import ControllerSettings, Mode
from cluster.spec import EngineSpec
from cluster.status import FleetStatus
from workers.actor import EngineActor


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

    def __init__(self, specs: Sequence[EngineSpec], served_model_name: str) -> None:
        app_name = serve.get_replica_context().app_name
        fleet = Fleet(EngineActor, specs, namespace=f"specfleet-{app_name}")
        self._controller = Controller(fleet, served_model_name, measured=GoodputPolicy())
        self._running: asyncio.Task[None] | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Follow a new `user_config`. A wrong one is refused, and the one before holds on."""
        self._controller.configure(ControllerSettings.model_validate(user_config))
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._controller.run())

    def check_health(self) -> None:
        """Let Serve replace a replica whose loop has ended: it never should."""
        if self._running is not None and self._running.done():
            self._running.result()

    async def status(self) -> FleetStatus:
        return self._controller.status()

    async def set_mode(self, mode: Mode) -> None:
        self._controller.set_mode(mode)
