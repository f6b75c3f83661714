"""What an ingress knows of the fleet."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from cluster.messages import errors
from cluster.messages.errors import ApiError
from cluster.routing.admission_queue import AdmissionQueue, QueueFullError
from cluster.routing.routed_request import RoutedRequest
from cluster.routing.router import Router, Slot
from cluster.routing.snapshot import PackedSnapshot, Snapshot
from serve_app.error_responses import RequestError
from serve_app.ingress_settings import IngressSettings
from serve_app.relay.addresses import Addresses

_LOG = logging.getLogger(__name__)

SYNC_EVERY_S = 0.2
"""Between two snapshots."""

NO_CONTROLLER = (RayError, RayServeException)
"""What a call to the controller raises if there is none. Serve's own errors are not Ray's."""


class Metrics(Protocol):
    """Learns how many requests are in flight, by engine, and how many wait."""

    def observe(self, in_flight: Mapping[str, int], waiting: int) -> None: ...


class FleetView:
    """The last snapshot of the fleet, and the slots and addresses of its engines."""

    def __init__(self, controller: Any, metrics: Metrics) -> None:
        """`controller` is the handle of the controller's deployment."""
        self._controller = controller
        self._metrics = metrics
        self._router = Router()
        self._queue = AdmissionQueue(self._router)
        self._snapshot: Snapshot | None = None
        self.addresses = Addresses()

    async def keep_in_sync(self) -> None:
        """Fetch snapshots for ever. While there is no controller, the last one stays in use."""
        while True:
            asked_at = time.monotonic()
            try:
                packed: PackedSnapshot = await self._controller.snapshot.remote()
                self.update(packed.unpack(), asked_at - packed.age_s)
            except NO_CONTROLLER as error:
                _LOG.warning("no snapshot from the controller: %s", error)
            self._metrics.observe(self._router.in_flight, len(self._queue))
            await asyncio.sleep(SYNC_EVERY_S)

    def update(self, snapshot: Snapshot, built_at: float) -> None:
        """Use a snapshot that was built at `built_at` or later, in seconds of `time.monotonic`."""
        self._snapshot = snapshot
        self._router.observe(snapshot.serving, built_at)
        self.addresses.keep({engine.actor for engine in snapshot.engines})
        self._queue.advance()

    @property
    def snapshot(self) -> Snapshot:
        """The last snapshot.

        Raises:
            RequestError: before the first one.
        """
        if self._snapshot is None:
            raise RequestError(errors.no_engine("the fleet is starting: the controller has sent no snapshot yet"))
        return self._snapshot

    async def reserve(self, request: RoutedRequest, lost: Mapping[str, ApiError], settings: IngressSettings) -> Slot:
        """A slot for `request`, at once or after a wait in the queue. It must be given back by `release`.

        `lost` holds, by actor, the errors of engines that were lost with this request.

        Raises:
            RequestError: if there is no slot in time.
        """
        try:
            return await self._queue.reserve(request, lost, settings.queue_limits)
        except QueueFullError:
            pass
        if lost:
            raise RequestError(next(iter(lost.values())))
        if self.snapshot.serving:
            raise RequestError(errors.fleet_full(settings.queue_timeout_s))
        states = "; ".join(f"{engine.name} is {engine.state} ({engine.detail})" for engine in self.snapshot.engines)
        raise RequestError(errors.no_engine(f"no engine is serving: {states}"))

    def release(self, slot: Slot) -> None:
        """Give a slot back."""
        self._queue.release(slot)
