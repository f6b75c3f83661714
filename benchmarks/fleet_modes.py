"""Tokens per second and TPOT of a whole fleet by concurrency, in the modes on, off and auto, through HTTP.

    python -m benchmarks.fleet_modes --out FILE [--engines 2] [--device cpu] [--accept-length 3.0]

On GPUs: engines of one GPU each, Llama 3.1 8B shapes with random weights, prompts of 512 tokens, answers of 256. Random
weights accept nothing, so acceptance is SGLang's simulation (SGLANG_SIMULATE_ACC_LEN): every step yields `--accept-length`
tokens a request, but at most depth + 1. On the CPU: the packaged tiny pair, with its own acceptance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.serving import document, fleet, new_tokens, url
from benchmarks.shapes import served_8b
from cluster.messages.status import FleetStatus
from workers.hardware import hardware

MODES = ("on", "off", "auto")
MODEL = "bench"

Point = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--engines", type=int, default=2, help="engines of one GPU each")
    parser.add_argument("--ingresses", type=int, default=4, help="ingress replicas")
    parser.add_argument("--accept-length", type=float, default=3.0, help="simulated accept length, on a GPU")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 64, 120])
    parser.add_argument("--settle", type=float, default=4.0, help="seconds before a measurement")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a measurement")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "fleet.yaml"
        config.write_text(yaml.safe_dump(_config(args, Path(folder))))
        with fleet(config):
            points = asyncio.run(_measure(args))
    result = {
        "machine": hardware(args.device),
        "software": {name: version(name) for name in ("sglang", "torch", "ray")},
        "settings": {key: value for key, value in vars(args).items() if key != "out"},
        "points": points,
    }
    args.out.write_text(json.dumps(result, indent=1))
    print(f"{result['machine']}; {result['software']}\n\n{_table(points, args.concurrency)}")


def _config(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model: dict[str, Any] = {"model": "tiny", "candidate_depths": [0, 1, 3]}
    if args.device == "cuda":
        model = served_8b(folder, args.accept_length, mem_fraction=0.75)
        model["server_args"] |= {
            "disable_radix_cache": True,
            # A chunk each eight tokens: at thousands of chunks a second the clients of this benchmark are too slow.
            "stream_interval": 8,
        }
    return document(
        {**model, "served_model_name": MODEL, "device": args.device, "engines": [{"count": args.engines}]},
        {"name": "Ingress", "num_replicas": args.ingresses, "ray_actor_options": {"num_cpus": 0.1}},
        {"name": "Controller", "ray_actor_options": {"num_cpus": 0.1}, "user_config": {"depth_when_on": 3}},
    )


async def _measure(args: argparse.Namespace) -> list[Point]:
    points = []
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        for concurrency in args.concurrency:  # warms up
            await _point(http, concurrency, args)
        for mode in MODES:
            async with http.post(url("/fleet/mode"), json={"mode": mode}) as answer:
                answer.raise_for_status()
            for concurrency in args.concurrency:
                points.append({"mode": mode, "concurrency": concurrency, **await _point(http, concurrency, args)})
                print(points[-1], flush=True)
    return points


async def _status(http: aiohttp.ClientSession) -> FleetStatus:
    async with http.get(url("/fleet")) as answer:
        return FleetStatus.model_validate_json(await answer.read())


async def _point(http: aiohttp.ClientSession, concurrency: int, args: argparse.Namespace) -> Point:
    """Output tokens a second, and medians of TPOT and TTFT, while `concurrency` clients ask without a pause."""
    prompt_tokens, answer_tokens = (512, 256) if args.device == "cuda" else (64, 64)
    rng = random.Random(concurrency)
    tokens = 0
    counting = False
    tpot: list[float] = []
    ttft: list[float] = []

    async def client() -> None:
        nonlocal tokens
        while True:
            prompt = [rng.randrange(2, 500) for _ in range(prompt_tokens)]
            body = {"model": MODEL, "prompt": prompt, "max_tokens": answer_tokens, "ignore_eos": True}
            asked, times, counts = time.perf_counter(), [], []
            async for new in new_tokens(http, {**body, "temperature": 0, "stream": True}):
                times.append(time.perf_counter())
                counts.append(new)
                tokens += new if counting else 0
            if counting:
                tpot.append((times[-1] - times[0]) / sum(counts[1:]))
                ttft.append(times[0] - asked)

    clients = [asyncio.create_task(client()) for _ in range(concurrency)]
    await asyncio.sleep(args.settle)
    before = await _status(http)
    counting, began = True, time.perf_counter()
    while time.perf_counter() - began < args.seconds or len(tpot) < 2:
        await asyncio.wait(clients, timeout=0.2, return_when=asyncio.FIRST_EXCEPTION)
        for task in clients:
            if task.done():
                task.result()
    counting, took = False, time.perf_counter() - began
    after = await _status(http)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return {
        "tokens_per_s": round(tokens / took, 1),
        "tpot_ms": round(1e3 * statistics.median(tpot), 2),
        "ttft_ms": round(1e3 * statistics.median(ttft), 1),
        "answers": len(tpot),
        "running": [e.report.load.running for e in after.engines if e.report],
        **_decoded(before, after),
    }


def _decoded(before: FleetStatus, after: FleetStatus) -> dict[str, Any]:
    """Share of decode steps at each depth, and accept length, between two snapshots."""
    steps: Counter[int] = Counter()
    tokens = requests = 0
    for status, sign in ((before, -1), (after, 1)):
        for report in [engine.report for engine in status.engines if engine.report]:
            for depth, count in zip(report.steps.depth, report.steps.count, strict=True):
                steps[depth] += sign * count
            tokens += sign * report.tokens
            requests += sign * report.requests
    shares = {depth: round(count / steps.total(), 3) for depth, count in sorted(steps.items()) if count}
    return {"steps_at_depth": shares, "accept_length": round(tokens / max(1, requests), 2)}


def _table(points: list[Point], concurrency: list[int]) -> str:
    by_place = {(point["mode"], point["concurrency"]): point for point in points}
    lines = [
        "| tokens/s, TPOT | " + " | ".join(f"{c} clients" for c in concurrency) + " |",
        "|---" * (len(concurrency) + 1) + "|",
    ]
    for mode in MODES:
        row = [by_place[mode, c] for c in concurrency]
        lines.append(f"| {mode} | " + " | ".join(f"{p['tokens_per_s']:.0f}, {p['tpot_ms']:.2f} ms" for p in row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
