"""What a controller of a thousand engines costs with one ingress and with eight, as one JSON object.

    python -m benchmarks.snapshot_fan_out [ENGINES TICKS]

The controller runs in a replica of Ray Serve, as in a fleet, and each ingress fetches a snapshot five times a second through
a handle. The figure is the CPU time of the replica's process for each tick: decide, build and pack the status, publish metrics,
and all that Ray does to send the snapshots. Each engine reports once, before the measurement. Exchanges during it, and reports
with something new in them, would cost the same with any number of ingresses, and so hide what is compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import ray
from ray import serve

from benchmarks.serving import RAY_ENVIRONMENT
from benchmarks.thousand_engines import FACTS, TICK_S, Engine
from cluster.control.controller import Controller
from cluster.messages.directive import DepthTable, Directive
from cluster.messages.hello import EngineHello
from cluster.messages.profile import Profile
from cluster.messages.report import EngineReport
from cluster.messages.settings import ControllerSettings
from cluster.messages.spec import EngineSpec
from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.routing.snapshot import PackedSnapshot


class FakeEngine:
    """Stands in for an actor's handle."""

    def __init__(self, spec: EngineSpec, report: EngineReport) -> None:
        self._spec, self._report = spec, report
        self.hello = SimpleNamespace(remote=self._hello)
        self.exchange = SimpleNamespace(remote=self._exchange)

    async def _hello(self) -> EngineHello:
        return EngineHello(spec=self._spec, facts=FACTS)

    async def _exchange(self, directive: Directive) -> EngineReport:
        return self._report


class FakeFleet:
    """Stands in for `cluster.control.fleet.Fleet`; no engine ever ends."""

    namespace = "benchmark"

    def __init__(self, engines: int) -> None:
        self._profile = Profile.load("h200_llama8b_eagle3")
        names = [f"engine-{i}" for i in range(engines)]
        common: dict[str, Any] = {"model": "tiny", "served_model_name": "tiny", "fallback": DepthTable(enabled=False)}
        self._wanted = {name: EngineSpec(name=name, **common) for name in names}
        self._actors: set[str] = set()

    def wanted(self, counts: Mapping[str, int]) -> Mapping[str, EngineSpec]:
        return self._wanted

    def living(self) -> set[str]:
        return set(self._actors)

    def create(self, actor: str, spec: EngineSpec) -> FakeEngine:
        self._actors.add(actor)
        return FakeEngine(spec, Engine(len(self._actors), self._profile).tick())


@serve.deployment(max_ongoing_requests=1000, logging_config={"enable_access_log": False})
class Replica:
    """The controller of a fleet whose engines have all reported."""

    def __init__(self, engines: int) -> None:
        self._controller = Controller(FakeFleet(engines), "tiny", MeasuredDepthPolicy())  # type: ignore[arg-type]

    async def prepare(self) -> int:
        """Let all engines report once, and return how many there are."""
        self._controller.configure(ControllerSettings(tick_s=10))
        running = asyncio.create_task(self._controller.run())
        while any(engine.state != "serving" for engine in self._controller.status().engines):
            await asyncio.sleep(0.5)
        running.cancel()
        return len(self._controller.status().serving)

    async def snapshot(self) -> PackedSnapshot:
        return self._controller.snapshot()

    async def cpu_ms(self, ticks: int) -> float:
        """CPU time of this process for each tick."""
        began = time.process_time()
        for _ in range(ticks):
            self._controller.tick()
            await asyncio.sleep(TICK_S)
        return 1e3 * (time.process_time() - began) / ticks


async def _fetch(replica: Any) -> None:
    while True:
        packed: PackedSnapshot = await replica.snapshot.remote()
        assert packed.unpack().serving
        await asyncio.sleep(TICK_S)


async def _measure(replica: Any, ingresses: int, ticks: int) -> float:
    """CPU time of the replica for each tick, in ms."""
    fetching = [asyncio.create_task(_fetch(replica)) for _ in range(ingresses)]
    await replica.cpu_ms.remote(5)
    ms: float = await replica.cpu_ms.remote(ticks)
    for task in fetching:
        task.cancel()
    return ms


def main() -> None:
    engines, ticks = (int(arg) for arg in (sys.argv[1:] or ("1000", "50")))
    os.environ.update(RAY_ENVIRONMENT)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(proxy_location="Disabled")
        replica = serve.run(Replica.bind(engines), route_prefix=None)
        assert replica.prepare.remote().result() == engines
        ms = {ingresses: asyncio.run(_measure(replica, ingresses, ticks)) for ingresses in (1, 8)}
    finally:
        serve.shutdown()
        ray.shutdown()
    figures = {f"ms_with_{ingresses}": round(cost, 1) for ingresses, cost in ms.items()}
    print(json.dumps({"engines": engines, "ticks": ticks, **figures, "ratio": round(ms[8] / ms[1], 2)}))


if __name__ == "__main__":
    main()
