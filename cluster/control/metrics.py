"""The fleet's metrics, on the metrics page of the Ray dashboard and in Prometheus."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from cluster.messages.status import EngineStatus


class FleetMetrics:
    """One time series for each engine, under the tag `engine`."""

    def __init__(self) -> None:
        def gauge(name: str, description: str) -> Gauge:
            return Gauge(f"specfleet_{name}", description=description, tag_keys=("engine",))

        self._running = gauge("running_requests", "Requests in the last decode batch.")
        self._waiting = gauge("waiting_requests", "Accepted requests that are not in the last decode batch.")
        self._depth = gauge("depth", "Speculation depth of the last decode step.")
        self._accept_length = gauge("accept_length", "Tokens that a decode step yields for one request, bonus token included.")
        self._goodput = gauge("goodput_tokens_per_second", "Tokens per second that decode steps yield.")
        self._age = gauge("directive_age_seconds", "Time since the engine last accepted a directive.")
        self._switches = Counter(
            "specfleet_depth_switches", description="Changes of depth between two decode steps.", tag_keys=("engine",)
        )
        self._counted: dict[str, tuple[int, int]] = {}

    def observe(self, status: EngineStatus) -> None:
        """Publish an engine's newest report."""
        report = status.report
        if report is None:
            return
        tags = {"engine": status.name}
        self._running.set(report.load.running, tags)
        self._waiting.set(report.load.waiting, tags)
        self._depth.set(report.depth, tags)
        self._age.set(report.applied.age_s + (status.report_age_s or 0.0), tags)
        self._goodput.set(status.goodput or 0.0, tags)
        if status.accept_length is not None:
            self._accept_length.set(status.accept_length, tags)
        incarnation, before = self._counted.get(status.actor, (report.incarnation, 0))
        if incarnation != report.incarnation:
            before = 0
        if report.switches > before:
            self._switches.inc(report.switches - before, tags)
        self._counted[status.actor] = (report.incarnation, report.switches)
