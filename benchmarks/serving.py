"""Servers that benchmarks start, and streams from them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 600
PORT = 8000


@contextmanager
def fleet(config: Path) -> Iterator[None]:
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    serve = [str(ROOT / "configs" / "with-haproxy"), sys.executable, "-m", "ray.serve.scripts"]
    with running([*serve, "run", str(config)], environment, signal.SIGINT):
        yield


@contextmanager
def running(command: list[str], environment: dict[str, str], stop: signal.Signals) -> Iterator[None]:
    """A server, from its being ready to its end."""
    log = Path(tempfile.mkstemp(prefix="overhead-", suffix=".log")[1])
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _healthy():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command[:4])} did not start\n{log.read_text()[-4000:]}")
            time.sleep(0.5)
        yield
    finally:
        process.send_signal(stop)
        process.wait(120)
        log.unlink()


def url(path: str) -> str:
    return f"http://127.0.0.1:{PORT}{path}"


def _healthy() -> bool:
    try:
        return bool(urllib.request.urlopen(url("/health"), timeout=5).status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def new_tokens(http: aiohttp.ClientSession, body: dict[str, Any]) -> AsyncIterator[int]:
    """New tokens at each piece of a stream, by its continuous usage."""
    body = {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    seen = 0
    async with http.post(url("/v1/completions"), json=body) as answer:
        answer.raise_for_status()
        async for chunk in answer.content.iter_any():
            at = chunk.rfind(b'"completion_tokens":')
            if at >= 0:
                total = int(chunk[at + 20 :].split(b",", 1)[0].rstrip(b"}"))
                yield total - seen
                seen = total
