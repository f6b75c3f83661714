"""Time of a decode step by depth and batch size, what depth 0 costs over no speculation, and what a switch costs.

    python -m benchmarks.depth_cost --out FILE [--device cpu] [--depths 0 1 3] [--batches 1 8 32]

Engines run one after the other: the patched one, one without speculation, and one for each of SGLang's two choices at
depth 0 (the whole draft-extend at every step; none at all). Steps that yield one token are timed in the same way everywhere:
one request of a full batch streams 128 tokens; the figure is the median of some rounds. Drafting steps are timed by the patched
engine's own counters.

On a GPU: Llama 3.1 8B shapes, random weights, contexts of 512 tokens. On the CPU: the packaged tiny pair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from benchmarks.shapes import llama_8b_pair
from cluster.messages.directive import DepthTable, Directive
from cluster.messages.report import EngineReport
from cluster.messages.spec import EngineSpec
from workers.directed_engine import DirectedEngine
from workers.engine_face import Generated
from workers.hardware import hardware
from workers.sglang_patch.draft_modes import SKIPPED_EXTEND_ENV, WHOLE_EXTEND_ENV
from workers.sglang_patch.engine import PlainEngine, SGLangEngine
from workers.sglang_patch.server_args import sglang_arguments

CONTEXT = {"cuda": 512, "cpu": 64}
STEPS = 32
TIMED = 128
FIRST = 8

Row = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 1, 2, 3, 5, 7])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--attention-backend", default="fa3")
    parser.add_argument("--rounds", type=int, default=2, help="timings of each batch size, of which the median counts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = _measure(args, Path(name))
    print(_table(result))


def _measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    spec = _spec(args, folder, args.depths)
    result: dict[str, Any] = {
        "machine": hardware(args.device),
        "software": {name: version(name) for name in ("sglang", "torch")},
        "attention_backend": args.attention_backend if args.device == "cuda" else "cpu",
        "context": CONTEXT[args.device],
    }

    def directed(spec: EngineSpec, measure: Callable[[DirectedEngine], Coroutine[Any, Any, None]], **environment: str) -> None:
        os.environ.update(environment)
        began = time.monotonic()
        face = SGLangEngine()
        face.start(spec, known=None)
        result.setdefault("start_s", round(time.monotonic() - began, 1))
        engine = DirectedEngine(spec, face)
        loop.run_until_complete(engine.prove_patch())
        loop.run_until_complete(measure(engine))
        face.shutdown()
        args.out.write_text(json.dumps(result, indent=1))
        for key in environment:
            del os.environ[key]

    async def all_depths(engine: DirectedEngine) -> None:
        result["depth_0_step_ms"] = await _one_token_steps(engine.face, args)
        result["step_ms"] = await _drafting_steps(engine, args.depths, args.batches)
        result["state_gib"] = (await engine.facts()).state_gib
        result["switches"] = await _switches(engine, args.depths, args.batches)

    def only_zero(name: str) -> Callable[[DirectedEngine], Coroutine[Any, Any, None]]:
        async def measure(engine: DirectedEngine) -> None:
            result[name] = await _one_token_steps(engine.face, args)

        return measure

    directed(spec, all_depths)
    plain = PlainEngine()
    plain.launch({key: value for key, value in sglang_arguments(spec, folder).items() if not key.startswith("speculative_")})
    result["plain_step_ms"] = loop.run_until_complete(_one_token_steps(plain, args))
    plain.shutdown()
    args.out.write_text(json.dumps(result, indent=1))
    # Depth 0 only, so that these start sooner; 1 because SGLang starts at a depth above 0.
    small = _spec(args, folder, [0, 1])
    directed(small, only_zero("whole_extend_step_ms"), **{WHOLE_EXTEND_ENV: "1"})
    directed(small, only_zero("skipped_extend_step_ms"), **{SKIPPED_EXTEND_ENV: "1"})
    return result


def _spec(args: argparse.Namespace, folder: Path, depths: Sequence[int]) -> EngineSpec:
    common: dict[str, Any] = {
        "name": "bench",
        "served_model_name": "bench",
        "device": args.device,
        "candidate_depths": tuple(depths),
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


async def _drafting_steps(engine: DirectedEngine, depths: Sequence[int], batches: Sequence[int]) -> dict[str, Row]:
    """Milliseconds of a step by depth and batch size, from the engine's counters."""
    table: dict[str, Row] = {}
    for depth in depths:
        row = table.setdefault(str(depth), {})
        for batch in batches:
            for _ in range(2):  # the first run warms up
                before = await _direct(engine, depth)
                tokens = STEPS * (depth + 1) if engine.spec.device == "cpu" else STEPS
                await engine.face.generate(_prompts(batch, engine.spec.device), tokens)
                after = await engine.report(accepted=True)
            row[str(batch)] = round(_step_ms(before, after, depth, batch), 4)
    await _direct(engine, 0)
    return table


async def _direct(engine: DirectedEngine, depth: int) -> EngineReport:
    directive = Directive(
        incarnation=1,
        sequence=time.monotonic_ns(),
        table=DepthTable(depth_by_batch={1: depth}),
        lease_s=3600,
        reason="benchmark",
    )
    return await engine.exchange(directive)


def _step_ms(before: EngineReport, after: EngineReport, depth: int, batch: int) -> float:
    """Mean time of the steps between two reports."""

    def total(report: EngineReport) -> tuple[int, float]:
        steps = report.steps
        rows = [i for i, pair in enumerate(zip(steps.depth, steps.batch, strict=True)) if pair == (depth, batch)]
        return sum(steps.timed[i] for i in rows), sum(steps.seconds[i] for i in rows)

    (n0, t0), (n1, t1) = total(before), total(after)
    return 1e3 * (t1 - t0) / (n1 - n0)


async def _switches(engine: DirectedEngine, depths: Sequence[int], batches: Sequence[int]) -> list[dict[str, float]]:
    """What the first step after a switch takes over a usual step at its depth, while depths change at random all the time.

    The way out of depth 0 is one more step at depth 0 with the whole draft-extend; it counts as a usual step here.
    """
    rng = random.Random(0)
    tokens = 400 if engine.spec.device == "cpu" else 700
    found = []
    for batch in batches:
        running = engine.face.generate(_prompts(batch, engine.spec.device), tokens)
        first = await engine.report(accepted=True)
        while not running.done():
            await _direct(engine, rng.choice(depths))
            await asyncio.sleep(0.04)
        last = await engine.report(accepted=True)
        rows = [row for row in (await engine.counters()).switch_steps.tolist() if row[2] == batch]
        usual = {depth: _step_ms(first, last, depth, batch) for depth in depths}
        costs = sorted(1e3 * seconds - usual[int(to)] for _, to, _, seconds in rows)
        found.append(
            {
                "batch": batch,
                "switches": len(costs),
                "median_ms": round(statistics.median(costs), 3),
                "p99_ms": round(costs[int(0.99 * len(costs))], 3),
                "plain_step_ms": round(usual[0], 3),
            }
        )
    return found


class _Generates(Protocol):
    """What `EngineFace` and an engine without the patch have in common."""

    def generate(self, prompts: list[list[int]], max_new_tokens: int) -> asyncio.Future[list[Generated]]: ...
    def stream(self, prompt: list[int], max_new_tokens: int) -> AsyncGenerator[Generated, None]: ...


async def _one_token_steps(engine: _Generates, args: argparse.Namespace) -> Row:
    """Milliseconds of a step that yields one token, by batch size: the median of some rounds."""
    row = {}
    for batch in args.batches:
        prompts = _prompts(batch, args.device)
        await _tokens_ms(engine, prompts)  # warms up
        row[str(batch)] = round(statistics.median([await _tokens_ms(engine, prompts) for _ in range(args.rounds)]), 4)
    return row


async def _tokens_ms(engine: _Generates, prompts: list[list[int]]) -> float:
    """Milliseconds between two tokens of the request that came last, so that the batch is full while it streams."""
    *first, last = prompts
    others = engine.generate(first, FIRST + TIMED + 4) if first else None
    await asyncio.sleep(0.01)
    seen: list[tuple[int, float]] = []
    async for answer in engine.stream(last, FIRST + TIMED):
        seen.append((len(answer.tokens), time.perf_counter()))
    if others is not None:
        await others
    start = next((n, at) for n, at in seen if n >= FIRST)
    return 1e3 * (seen[-1][1] - start[1]) / (seen[-1][0] - start[0])


def _prompts(count: int, device: str) -> list[list[int]]:
    """Prompts of random tokens."""
    rng = random.Random(count)
    return [[rng.randrange(2, 2000) for _ in range(CONTEXT[device])] for _ in range(count)]


def _table(result: dict[str, Any]) -> str:
    batches = list(result["plain_step_ms"])
    lines = ["| ms a step | " + " | ".join(f"batch {b}" for b in batches) + " |", "|---" * (len(batches) + 1) + "|"]

    def add(name: str, row: Row, form: str = "{:.2f}") -> None:
        lines.append(f"| {name} | " + " | ".join(form.format(row[b]) if b in row else "" for b in batches) + " |")

    plain = result["plain_step_ms"]
    add("no speculation", plain)
    for name, key in [
        ("depth 0", "depth_0_step_ms"),
        ("depth 0, whole draft-extend", "whole_extend_step_ms"),
        ("depth 0, draft-extend skipped (cold)", "skipped_extend_step_ms"),
    ]:
        add(name, result[key])
        add("over no speculation", {b: result[key][b] / plain[b] for b in plain}, "{:.3f}")
    for depth, row in result["step_ms"].items():
        add(f"depth {depth}, by its counters", row)
    lines += ["", "| batch | switches | cost of a switch: median, p99 (ms) | a step at depth 0 (ms) |", "|---|---|---|---|"]
    lines += [
        f"| {s['batch']} | {s['switches']} | {s['median_ms']:.2f}, {s['p99_ms']:.2f} | {s['plain_step_ms']:.2f} |"
        for s in result["switches"]
    ]
    return "\n".join([f"{result['machine']}; {result['software']}", "", *lines])


if __name__ == "__main__":
    main()
