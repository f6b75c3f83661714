"""Batch sizes, step by step, of an engine that serves a trace. Prints a JSON list.

    python -m benchmarks.batch_series TRACE.csv SPEEDUP STEPS

The trace has columns TIMESTAMP and GeneratedTokens (AzurePublicDataset's LLM inference traces). Its arrivals, played
`SPEEDUP` times faster, join the engine's decode batch at the next step; beyond `MAX_RUNNING` requests they wait. Each request
stays for its generated tokens at `TOKENS` a step. A step takes what the H200 profile says for depth 1 at that batch size. Times
without any request have no steps.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from datetime import datetime
from math import ceil
from pathlib import Path

from cluster.messages.profile import Profile

TOKENS = 2  # accept length
MAX_RUNNING = 128


def series(arrivals: Sequence[tuple[float, int]], steps: int) -> list[int]:
    """Batch size of each step, from (arrival in seconds, output tokens)."""
    profile = Profile.load("h200_llama8b_eagle3")
    waiting = sorted(arrivals, reverse=True)
    running: list[int] = []
    now, batches = 0.0, []
    while len(batches) < steps and (waiting or running):
        if not running:
            now = max(now, waiting[-1][0])
        while waiting and waiting[-1][0] <= now and len(running) < MAX_RUNNING:
            running.append(ceil(max(1, waiting.pop()[1]) / TOKENS))
        batches.append(len(running))
        now += profile.ms(1, len(running)) / 1e3
        running = [left - 1 for left in running if left > 1]
    return batches


def read(path: Path, speedup: float) -> list[tuple[float, int]]:
    """Arrivals of a trace, in seconds after the first, and their output tokens."""
    with path.open() as file:
        rows = [(datetime.fromisoformat(r["TIMESTAMP"][:26]), int(r["GeneratedTokens"])) for r in csv.DictReader(file)]
    return [((at - rows[0][0]).total_seconds() / speedup, tokens) for at, tokens in rows]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.batch_series", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("speedup", type=float)
    parser.add_argument("steps", type=int)
    arguments = parser.parse_args()
    print(json.dumps(series(read(arguments.trace, arguments.speedup), arguments.steps)))


if __name__ == "__main__":
    main()
