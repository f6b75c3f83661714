"""What an ingress replica does with a `user_config`, without Serve around it."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.access.access_policy import AccessPolicy
from serve_app.ingress import Ingress
from serve_app.ingress_settings import IngressSettings


@pytest.fixture
def replica() -> Any:
    followed: list[IngressSettings] = []
    app = SimpleNamespace(state=SimpleNamespace(access_policy=None))
    return SimpleNamespace(app=app, followed=followed, _relay=SimpleNamespace(configure=followed.append), _configured=False)


async def reconfigure(replica: Any, **user_config: Any) -> None:
    await Ingress.func_or_class.reconfigure(replica, user_config)


wrong_configs = pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_body_byte": 1}, "max_body_byte"),
        ({"queue_length": -1}, "queue_length"),
        ({"api_keys": {"file": "/no/such/file"}}, "/no/such/file"),
    ],
)


@wrong_configs
async def test_a_wrong_config_is_refused_and_the_one_before_holds_on(
    replica: Any, wrong: dict[str, Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    await reconfigure(replica, max_body_bytes=7)
    await reconfigure(replica, **wrong)
    assert [settings.max_body_bytes for settings in replica.followed] == [7]
    assert isinstance(replica.app.state.access_policy, AccessPolicy)
    assert replica.app.state.access_policy.max_body_bytes == 7
    assert named in caplog.text


@wrong_configs
async def test_a_replica_that_starts_with_a_wrong_config_fails(replica: Any, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        await reconfigure(replica, **wrong)
    assert replica.app.state.access_policy is None


def test_the_ingress_does_not_import_the_policy_or_the_engines() -> None:
    """Not even through another module: a replica starts fast and needs neither."""
    listed = subprocess.run(
        [sys.executable, "-c", "import serve_app.ingress, sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    banned = ("cluster.policy", "cluster.control", "cluster.simulation", "workers", "sglang", "torch")
    imported = listed.stdout.split()
    assert "serve_app.ingress" in imported
    assert [name for name in imported if name.startswith(banned)] == []
