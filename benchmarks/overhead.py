"""What the front door costs: the same engine behind our ingress and behind SGLang's own server, in turn.

    python -m benchmarks.overhead [CONFIG] [--rounds 3] [--seconds 20] [--clients 16] [--tokens 256]

CONFIG (default configs/local.yaml) says which engine: its first group's, one of them. In every round each side is started
afresh and asked by the same clients: first one client for the time to first token, then `--clients` of them, streaming, for
output tokens a second. SGLang's server runs with the same arguments, the same patch and the same fixed depth. Sides take
turns, so that a drift of the machine meets both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.serving import PORT, ROOT, fleet, healthy, new_tokens, running, url
from cluster.protocol import DepthTable
from cluster.spec import EngineSpec
from serve_app.config import AppConfig
from workers.directive import encode
from workers.launch import sglang_arguments
from workers.plugin import COUNTERS_ENV

DEPTH = 3
TTFT_REQUESTS = 60


@dataclass(frozen=True)
class Figures:
    """Of one side in one round."""

    ttft_ms: float
    tokens_per_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, nargs="?", default=ROOT / "configs" / "local.yaml")
    parser.add_argument("--rounds", type=int, default=3, help="times that each side is started and measured")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a measurement of throughput")
    parser.add_argument("--clients", type=int, default=16, help="streams at once")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each answer")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        document = _one_engine(yaml.safe_load(args.config.read_text()))
        config = Path(folder) / "overhead.yaml"
        config.write_text(yaml.safe_dump(document))
        (spec,) = AppConfig.model_validate(document["applications"][0]["args"]).specs()
        sides = {"ingress": lambda: fleet(config), "sglang.launch_server": lambda: _server(spec, Path(folder))}
        figures: dict[str, list[Figures]] = {name: [] for name in sides}
        for round_ in range(args.rounds):
            for name in list(sides)[:: 1 if round_ % 2 else -1]:
                with sides[name]():
                    figures[name].append(asyncio.run(_measure(spec.served_model_name, args)))
                print(f"round {round_ + 1}, {name}: {figures[name][-1]}", flush=True)
    _report(figures, args)


def _report(figures: dict[str, list[Figures]], args: argparse.Namespace) -> None:
    ttft = {name: statistics.median(f.ttft_ms for f in of) for name, of in figures.items()}
    rate = {name: statistics.median(f.tokens_per_s for f in of) for name, of in figures.items()}
    print(f"\n| medians of {args.rounds} | TTFT, one client (ms) | output tokens/s, {args.clients} streams |")
    print("| --- | --- | --- |")
    for name in figures:
        print(f"| {name} | {ttft[name]:.1f} | {rate[name]:.0f} |")
    ours, theirs = figures
    print(f"ratio of output tokens a second: {rate[ours] / rate[theirs]:.3f}; more TTFT: {ttft[ours] - ttft[theirs]:+.1f} ms")


def _one_engine(document: dict[str, Any]) -> dict[str, Any]:
    """A configuration's first engine alone, at a fixed depth, behind one ingress replica."""
    (application,) = document["applications"]
    application["args"]["engines"] = [{**application["args"]["engines"][0], "count": 1}]
    application["deployments"] = [{"name": "Controller", "user_config": {"mode": "on", "depth_when_on": DEPTH}}]
    document["http_options"] = {"host": "127.0.0.1", "port": PORT}
    return document


@contextmanager
def _server(spec: EngineSpec, folder: Path) -> Iterator[None]:
    """SGLang's server with the engine's arguments. The patch is put in as the engine actor puts it in, and the fixed depth
    by SGLang's own route for internal state."""
    counters = Path(tempfile.mkdtemp(prefix="overhead-", dir="/dev/shm"))
    arguments = {**sglang_arguments(spec, folder), "host": "127.0.0.1", "port": PORT}
    environment = {**os.environ, **spec.environment, COUNTERS_ENV: str(counters)}
    try:
        with running([sys.executable, "-m", "sglang.launch_server", *_flags(arguments)], environment, healthy, signal.SIGTERM):
            state = {"server_args": encode(DepthTable(depth_by_batch={1: DEPTH}), revision=1)}
            request = urllib.request.Request(
                url("/set_internal_state"), json.dumps(state).encode(), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request).read()
            yield
    finally:
        shutil.rmtree(counters)


def _flags(arguments: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        if value is not False and value is not None:
            flags += [flag] if value is True else [flag, *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return flags


async def _measure(model: str, args: argparse.Namespace) -> Figures:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        body = {"model": model, "temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
        for _ in range(5):
            await _ask(http, {**body, "prompt": "import os\n", "max_tokens": 32})
        ttft = [(await _ask(http, {**body, "prompt": _prompt(i), "max_tokens": 8}))[0] for i in range(TTFT_REQUESTS)]
        tokens = 0
        counting = False

        async def ask_for_ever(client: int) -> None:
            nonlocal tokens
            asked = 0
            while True:
                asked += 1
                async for new in new_tokens(http, {**body, "prompt": _prompt(1000 * client + asked), "max_tokens": args.tokens}):
                    tokens += new if counting else 0

        clients = [asyncio.create_task(ask_for_ever(i + 1)) for i in range(args.clients)]
        await asyncio.sleep(3)
        counting, began = True, time.perf_counter()
        await asyncio.sleep(args.seconds)
        counting, took = False, time.perf_counter() - began
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await asyncio.sleep(1)
    return Figures(ttft_ms=1e3 * statistics.median(ttft), tokens_per_s=tokens / took)


def _prompt(number: int) -> str:
    """Short, and different each time, so that no cache tells the sides apart."""
    return f"def function_{number}(self, value):\n    "


async def _ask(http: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[float, int]:
    """Seconds to the first piece of text, and tokens in all."""
    began = time.perf_counter()
    first, tokens = None, 0
    async for new in new_tokens(http, body):
        first = first or time.perf_counter() - began
        tokens += new
    assert first is not None
    return first, tokens


if __name__ == "__main__":
    main()
