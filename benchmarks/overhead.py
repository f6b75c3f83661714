"""What the ingress costs: the same engine behind it and behind SGLang's own server.

    python -m benchmarks.overhead [--device cpu] [--rounds 15] [--seconds 6] [--clients 16] [--tokens 256]

On the CPU the packaged tiny pair; on a GPU Llama 3.1 8B shapes with random weights and a simulated accept length of 3. SGLang's
server runs with the same arguments, the same patch and the same fixed depth. Both run all the time and hold their memory. In each
round they answer in turn, first a single client and then `--clients` streams, while all processes of the other are stopped. The
machine's speed drifts by more than the difference that is measured; turns of a few seconds meet both sides with it.
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
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import yaml

from benchmarks.serving import PORT, document, fleet, get, new_tokens, running, url
from benchmarks.shapes import served_8b
from cluster.messages.directive import DepthTable
from cluster.messages.spec import EngineSpec
from serve_app.configuration import AppConfig
from workers.hardware import hardware
from workers.sglang_patch.environment import COUNTERS_ENV
from workers.sglang_patch.server_args import sglang_arguments
from workers.sglang_patch.table_encoding import encode

DEPTH = 3
DIRECTED = {"mode": "on", "depth_when_on": DEPTH}
SERVER_PORT = PORT + 1
TTFT_REQUESTS = 40  # in a round
SETTLE_S = 1.5


@dataclass
class Side:
    """One of the two servers, and what was measured of it."""

    name: str
    port: int
    pid: int
    ttft_ms: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)

    def send(self, sent: signal.Signals) -> None:
        """Send a signal to all its processes."""
        server = psutil.Process(self.pid)
        for process in [server, *server.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(sent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
    parser.add_argument("--rounds", type=int, default=15, help="times that each side is measured")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a measurement of throughput")
    parser.add_argument("--clients", type=int, default=16, help="streams at once")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each answer")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        app = _one_engine(args.device, Path(folder))
        config = Path(folder) / "overhead.yaml"
        config.write_text(yaml.safe_dump(document(app, {"name": "Controller", "user_config": DIRECTED})))
        (spec,) = AppConfig.model_validate(app).specs()
        with fleet(config) as ours, _server(spec, Path(folder)) as theirs:
            sides = (Side("ingress", PORT, ours), Side("sglang.launch_server", SERVER_PORT, theirs))
            try:
                asyncio.run(_measure(sides, spec.served_model_name, args))
            finally:
                for side in sides:
                    side.send(signal.SIGCONT)
    _report(*sides, args)


def _report(ours: Side, theirs: Side, args: argparse.Namespace) -> None:
    software = ", ".join(f"{name} {version(name)}" for name in ("sglang", "torch", "ray"))
    print(f"\n{hardware(args.device)}; {software}\n")
    print(f"| {args.rounds} rounds | TTFT, one client: median (ms) | output tokens/s, {args.clients} streams: mean |")
    print("| --- | --- | --- |")
    for side in (ours, theirs):
        print(f"| {side.name} | {statistics.median(side.ttft_ms):.1f} | {statistics.mean(side.tokens_per_s):.0f} |")
    ratios = sorted(a / b for a, b in zip(ours.tokens_per_s, theirs.tokens_per_s, strict=True))
    of_sums = sum(ours.tokens_per_s) / sum(theirs.tokens_per_s)
    more = statistics.median(ours.ttft_ms) - statistics.median(theirs.ttft_ms)
    print(f"ratio of output tokens a second: {of_sums:.3f}; by round {ratios[0]:.2f} to {ratios[-1]:.2f}")
    print(f"more TTFT: {more:+.1f} ms")


def _one_engine(device: str, folder: Path) -> dict[str, Any]:
    if device == "cpu":
        return {"model": "tiny", "device": "cpu", "candidate_depths": [0, 1, DEPTH]}
    # Both engines are on one GPU; the later one gets this share of what the earlier one has left.
    return {
        **served_8b(folder, accept_length=3.0, mem_fraction=0.4),
        "served_model_name": "8b",
        "candidate_depths": [0, 1, DEPTH],
    }


@contextmanager
def _server(spec: EngineSpec, folder: Path) -> Iterator[int]:
    """SGLang's server with the engine's arguments. It gets the patch as in an engine actor, and the fixed depth through SGLang's
    own route for internal state."""
    counters = Path(tempfile.mkdtemp(prefix="overhead-", dir="/dev/shm"))
    arguments = {**sglang_arguments(spec, folder), "host": "127.0.0.1", "port": SERVER_PORT}
    environment = {**os.environ, **spec.environment, COUNTERS_ENV: str(counters)}
    try:
        command = [sys.executable, "-m", "sglang.launch_server", *_flags(arguments)]
        with running(command, environment, lambda: get(url("/health", SERVER_PORT)) is not None, signal.SIGTERM) as pid:
            state = {"server_args": encode(DepthTable(depth_by_batch={1: DEPTH}), revision=1)}
            request = urllib.request.Request(
                url("/set_internal_state", SERVER_PORT), json.dumps(state).encode(), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request).read()
            yield pid
    finally:
        shutil.rmtree(counters)


def _flags(arguments: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        if value is not False and value is not None:
            flags += [flag] if value is True else [flag, *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return flags


async def _measure(sides: tuple[Side, Side], model: str, args: argparse.Namespace) -> None:
    body = {"model": model, "temperature": 0, "ignore_eos": True, "stream": True}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        for round_ in range(args.rounds):
            for side in sides[:: 1 if round_ % 2 else -1]:
                async with _alone(side, sides):
                    for i in range(3 + TTFT_REQUESTS):
                        prompt = _prompt(1000 * round_ + i)
                        ttft = await _ttft(http, {**body, "prompt": prompt, "max_tokens": 2}, side.port)
                        side.ttft_ms += [1e3 * ttft] if i >= 3 else []
                    side.tokens_per_s.append(await _tokens_per_s(http, body, side.port, args))
                print(
                    f"round {round_ + 1}, {side.name}: TTFT {statistics.median(side.ttft_ms[-TTFT_REQUESTS:]):.1f} ms, "
                    f"{side.tokens_per_s[-1]:.0f} tokens/s",
                    flush=True,
                )


@asynccontextmanager
async def _alone(side: Side, sides: tuple[Side, Side]) -> AsyncIterator[None]:
    """One side runs while the other is stopped."""
    for other in sides:
        other.send(signal.SIGCONT if other is side else signal.SIGSTOP)
    await asyncio.sleep(SETTLE_S)
    yield


async def _tokens_per_s(http: aiohttp.ClientSession, body: dict[str, Any], port: int, args: argparse.Namespace) -> float:
    tokens = 0

    async def ask_for_ever(client: int) -> None:
        nonlocal tokens
        asked = 0
        while True:
            asked += 1
            asking = {**body, "prompt": _prompt(1000 * client + asked), "max_tokens": args.tokens}
            async for new in new_tokens(http, asking, port):
                tokens += new

    clients = [asyncio.create_task(ask_for_ever(i + 1)) for i in range(args.clients)]
    await asyncio.sleep(SETTLE_S)
    before, began = tokens, time.perf_counter()
    await asyncio.sleep(args.seconds)
    counted, took = tokens - before, time.perf_counter() - began
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    await asyncio.sleep(SETTLE_S)
    return counted / took


def _prompt(number: int) -> str:
    """Short, and different each time, so that no cache tells the sides apart."""
    return f"def function_{number}(self, value):\n    "


async def _ttft(http: aiohttp.ClientSession, body: dict[str, Any], port: int) -> float:
    """Seconds to the first piece of text; reads the whole answer."""
    began = time.perf_counter()
    times = [time.perf_counter() async for _ in new_tokens(http, body, port)]
    return times[0] - began


if __name__ == "__main__":
    main()
