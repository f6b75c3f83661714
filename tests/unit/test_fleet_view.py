"""How an ingress takes snapshots in."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.routing.snapshot import PackedSnapshot, Snapshot
from serve_app.relay.fleet_view import FleetView


async def test_ages_in_a_snapshot_count_from_when_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    content = Snapshot(namespace="n", served_model_name="tiny", engines=()).pack()
    seen: asyncio.Future[tuple[Snapshot, float]] = asyncio.get_running_loop().create_future()

    async def snapshot() -> PackedSnapshot:
        return PackedSnapshot(age_s=1000, content=content)

    def update(view: FleetView, snapshot: Snapshot, built_at: float) -> None:
        if not seen.done():
            seen.set_result((snapshot, built_at))

    monkeypatch.setattr(FleetView, "update", update)
    metrics: Any = SimpleNamespace(observe=lambda in_flight, waiting: None)
    began = time.monotonic()
    syncing = asyncio.create_task(FleetView(SimpleNamespace(snapshot=SimpleNamespace(remote=snapshot)), metrics).keep_in_sync())
    fetched, built_at = await seen
    syncing.cancel()
    assert fetched.served_model_name == "tiny"
    assert began - 1000 <= built_at <= time.monotonic() - 1000
