"""The only uses of Ray beyond its public interface. tests/worker/test_ray_internals.py checks them on the installed Ray."""

from __future__ import annotations

from typing import Any

from ray._private.state import actors  # `ray.util.state` has the same, but needs the dashboard


def is_placed(handle: Any) -> bool:
    """Whether an actor is on a node, rather than waiting for one."""
    return bool(actors(handle._actor_id.hex()).get("Address", {}).get("IPAddress"))


def pids(prefix: str) -> list[int]:
    """Processes of the living actors whose names begin with `prefix`."""
    return [a["Pid"] for a in actors().values() if (a["Name"] or "").startswith(prefix) and a["State"] == "ALIVE"]


def replica_prefix(app: str, deployment: str) -> str:
    """Prefix of the actor names of a Ray Serve deployment's replicas."""
    return f"SERVE_REPLICA::{app}#{deployment}#"
