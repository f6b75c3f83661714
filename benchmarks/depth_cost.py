"""Time of a decode step by depth and batch size, in one patched engine and in one without speculation.

    python -m benchmarks.depth_cost --out FILE [--device cpu] [--depths 0 1 3] [--batches 1 8 32]

The patched engine's own counters give the time of its steps; the plain engine's is the time of 128 more tokens over 128.
On a GPU: Llama 3.1 8B shapes, random weights, contexts of 512 tokens. On the CPU: the packaged tiny pair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.shapes import llama_8b_pair
from cluster.protocol import DepthTable, Directive, EngineReport
from cluster.spec import EngineSpec
from workers.engine import DirectedEngine

CONTEXT = 512
STEPS = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 1, 2, 3, 5, 7])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--attention-backend", default="fa3")
    args = parser.parse_args()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with tempfile.TemporaryDirectory() as folder:
        spec = _spec(args, Path(folder))
        began = time.monotonic()
        engine = DirectedEngine(spec)
        started_s = time.monotonic() - began
        steps = loop.run_until_complete(_directed(engine, args.depths, args.batches))
        engine._engine.shutdown()
        print(json.dumps(steps), flush=True)
        plain = loop.run_until_complete(_plain(spec, Path(folder), args.batches))
    result = {
        "machine": _machine(args.device),
        "software": {name: version(name) for name in ("sglang", "torch")},
        "attention_backend": args.attention_backend if args.device == "cuda" else "cpu",
        "context": CONTEXT,
        "start_s": round(started_s, 1),
        "plain_step_ms": plain,
        "step_ms": steps,
    }
    args.out.write_text(json.dumps(result, indent=1))
    print(_table(result))


def _spec(args: argparse.Namespace, folder: Path) -> EngineSpec:
    common: dict[str, Any] = {
        "name": "bench",
        "served_model_name": "bench",
        "device": args.device,
        "candidate_depths": tuple(args.depths),
        "fallback": DepthTable(enabled=False),
    }
    if args.device == "cpu":
        return EngineSpec(model="tiny", **common)
    target, draft = llama_8b_pair(folder)
    server_args = {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "attention_backend": args.attention_backend,
        "mem_fraction_static": 0.75,
        "max_running_requests": max(args.batches),
        "cuda_graph_bs_decode": sorted(args.batches),
        "disable_radix_cache": True,
    }
    return EngineSpec(model=str(target), draft_model=str(draft), server_args=server_args, **common)


async def _directed(engine: DirectedEngine, depths: Sequence[int], batches: Sequence[int]) -> dict[str, dict[str, float]]:
    """Milliseconds of a step by depth and batch size."""
    await engine.prove_patch()
    table: dict[str, dict[str, float]] = {}
    sequence = 0
    for depth in depths:
        row = table.setdefault(str(depth), {})
        for batch in batches:
            for _ in range(2):  # the first run warms up
                sequence += 1
                directive = Directive(
                    incarnation=1,
                    sequence=sequence,
                    table=DepthTable(depth_by_batch={1: depth}),
                    lease_s=3600,
                    reason="benchmark",
                )
                before = await engine.take(directive)
                await _generate(engine._engine, batch, STEPS * (depth + 1) if engine.spec.device == "cpu" else STEPS)
                after = engine.report(accepted=True)
            row[str(batch)] = round(_step_ms(before, after, depth, batch), 4)
    return table


def _step_ms(before: EngineReport, after: EngineReport, depth: int, batch: int) -> float:
    """Mean time of the steps between two reports."""

    def total(report: EngineReport) -> tuple[int, float]:
        steps = report.steps
        rows = [i for i, pair in enumerate(zip(steps.depth, steps.batch, strict=True)) if pair == (depth, batch)]
        return sum(steps.timed[i] for i in rows), sum(steps.seconds[i] for i in rows)

    (n0, t0), (n1, t1) = total(before), total(after)
    return 1e3 * (t1 - t0) / (n1 - n0)


async def _plain(spec: EngineSpec, folder: Path, batches: Sequence[int]) -> dict[str, float]:
    """Milliseconds of a step by batch size, in an engine that never speculates."""
    import sglang

    from workers.launch import sglang_arguments

    arguments = {key: value for key, value in sglang_arguments(spec, folder).items() if not key.startswith("speculative_")}
    engine = sglang.Engine(**arguments)
    row = {}
    for batch in batches:
        times = {}
        for tokens in (8, 8, 136, 136):  # twice: the first warms up
            began = time.perf_counter()
            await _generate(engine, batch, tokens)
            times[tokens] = time.perf_counter() - began
        row[str(batch)] = round(1e3 * (times[136] - times[8]) / 128, 4)
    engine.shutdown()
    return row


async def _generate(engine: Any, batch: int, tokens: int) -> None:
    """Answer `batch` prompts of random tokens at once, with `tokens` tokens each."""
    rng = random.Random(batch)
    length = CONTEXT if engine.server_args.device == "cuda" else 64
    prompts = [[rng.randrange(2, 2000) for _ in range(length)] for _ in range(batch)]
    params = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    await engine.async_generate(input_ids=prompts, sampling_params=params)


def _machine(device: str) -> str:
    if device == "cpu":
        return f"{platform.processor() or platform.machine()}, CPU"
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _table(result: dict[str, Any]) -> str:
    batches = list(result["plain_step_ms"])
    lines = ["| ms a step | " + " | ".join(f"batch {b}" for b in batches) + " |", "|---" * (len(batches) + 1) + "|"]
    lines.append("| no speculation | " + " | ".join(f"{result['plain_step_ms'][b]:.2f}" for b in batches) + " |")
    for depth, row in result["step_ms"].items():
        lines.append(f"| depth {depth} | " + " | ".join(f"{row[b]:.2f}" if b in row else "" for b in batches) + " |")
    return "\n".join([f"{result['machine']}; {result['software']}", "", *lines])


if __name__ == "__main__":
    main()
