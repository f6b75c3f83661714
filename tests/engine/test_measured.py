"""The measured decision on the real engine: a live change of `user_config`, and the depth that follows from what was seen."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.engine.conftest import CONFIG, busy, deploy
from tests.fleet import complete, eventually, status


@pytest.fixture
def measured(fleet: str) -> Iterator[None]:
    """The fleet's own configuration with no table, deployed while it runs."""
    config = yaml.safe_load(CONFIG.read_text())
    (controller,) = [d for d in config["applications"][0]["deployments"] if d["name"] == "Controller"]
    del controller["user_config"]["depth_by_batch"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.yaml"
        path.write_text(yaml.safe_dump(config))
        deploy(path)
        yield
        deploy(CONFIG)


@pytest.mark.usefixtures("measured")
async def test_the_depth_is_decided_by_measurement(client: httpx.AsyncClient, prompts: list[str]) -> None:
    before = await status(client)
    async with busy(client, prompts, clients=len(before.engines)):
        # Steps get a fifth or so dearer with drafting and yield three tokens for one: drafting wins by far.
        decided = await eventually(
            client, lambda f: all(e.report and e.report.depth > 0 and e.report.load.running == 1 for e in f.engines)
        )
    for old, new in zip(before.engines, decided.engines, strict=True):
        assert old.report
        assert new.report
        assert new.report.incarnation == old.report.incarnation, "a new user_config restarted an engine"
        assert re.search(r"\d", new.report.applied.reason), "the reason holds no figure"
        print(f"\n{new.name}: depth {new.report.depth}, {new.report.applied.reason}")
    await complete(client, prompts[0])
