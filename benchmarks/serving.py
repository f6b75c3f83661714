"""Servers as users start them, and streams from them. Tests start their fleets with it too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from cluster.messages.status import FleetStatus

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 600
PORT = 8000

RAY_ENVIRONMENT = {
    # Ray's token authentication would write a token into the user's home folder.
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray lowers its workers' priority; figures must not depend on other processes.
    "RAY_worker_niceness": "0",
}

NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""Environment of engines on GPUs whose NVLink multicast must not be used."""


def document(args: dict[str, Any], *deployments: dict[str, Any]) -> dict[str, Any]:
    """A configuration for `serve run`: one application of `args`, at `PORT` of the loopback address."""
    application = {"name": "specfleet", "route_prefix": "/", "import_path": "serve_app.app:build", "args": args}
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": PORT},
        "applications": [{**application, "deployments": list(deployments)}],
    }


@contextmanager
def fleet(config: Path) -> Iterator[int]:
    """Run `serve run` on a YAML, and yield its process id once all engines serve."""
    serve = [str(ROOT / "configs" / "with-haproxy"), sys.executable, "-m", "ray.serve.scripts", "run", str(config)]
    with running(serve, {**os.environ, **RAY_ENVIRONMENT}, all_engines_serve, signal.SIGINT) as pid:
        yield pid


@contextmanager
def running(command: list[str], environment: dict[str, str], ready: Callable[[], bool], stop: signal.Signals) -> Iterator[int]:
    """Run a server, and yield its process id once it is ready. Raises RuntimeError, with its last output, if it never is."""
    with tempfile.NamedTemporaryFile(prefix="serving-", suffix=".log") as log:
        # A session of its own, and SIGINT not ignored, even if this runs in the background of a shell.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    printed = Path(log.name).read_text()[-5000:]
                    raise RuntimeError(f"{' '.join(command[:5])} did not start\n{printed}")
                time.sleep(0.5)
            yield process.pid
        finally:
            process.send_signal(stop)
            process.wait(120)


def all_engines_serve() -> bool:
    """Whether all engines serve. Raises RuntimeError for an engine that failed to start."""
    engines = FleetStatus.model_validate_json(answer).engines if (answer := get(url("/fleet"))) else ()
    for engine in engines:
        if engine.state == "failed":
            raise RuntimeError(f"engine {engine.name} failed: {engine.detail}")
    return bool(engines) and all(engine.state == "serving" for engine in engines)


def get(address: str) -> bytes | None:
    """The body of an answer; None without a successful one."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return None


def url(path: str, port: int = PORT) -> str:
    return f"http://127.0.0.1:{port}{path}"


async def new_tokens(http: aiohttp.ClientSession, body: dict[str, Any], port: int = PORT) -> AsyncIterator[int]:
    """New tokens at each piece of a stream, by its continuous usage."""
    body = {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    seen = 0
    async with http.post(url("/v1/completions", port), json=body) as answer:
        answer.raise_for_status()
        async for chunk in answer.content.iter_any():
            at = chunk.rfind(b'"completion_tokens":')
            if at >= 0:
                total = int(chunk[at + 20 :].split(b",", 1)[0].rstrip(b"}"))
                yield total - seen
                seen = total
