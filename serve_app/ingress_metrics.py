"""Metrics of the ingress."""

from __future__ import annotations

from collections.abc import Mapping

from ray.serve.metrics import Gauge


class IngressMetrics:
    """Counts requests in one replica. Ray Serve adds the tag that names the replica."""

    def __init__(self) -> None:
        self._in_flight = Gauge(
            "specfleet_ingress_in_flight", description="Requests sent to an engine that have not ended.", tag_keys=("engine",)
        )
        self._waiting = Gauge("specfleet_ingress_waiting", description="Requests that wait because all engines are full.")
        self._engines: set[str] = set()

    def observe(self, in_flight: Mapping[str, int], waiting: int) -> None:
        """Publish counts by engine. An engine that is no longer counted goes to zero."""
        for engine in self._engines - in_flight.keys():
            self._in_flight.set(0, {"engine": engine})
        self._engines |= in_flight.keys()
        for engine, requests in in_flight.items():
            self._in_flight.set(requests, {"engine": engine})
        self._waiting.set(waiting)
