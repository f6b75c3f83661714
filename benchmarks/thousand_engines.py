"""Time of one decide() for a thousand engines that all report something new, as one JSON object.

    OMP_NUM_THREADS=1 python -m benchmarks.thousand_engines [ENGINES TICKS] [--bar-ms 100]

With a bar it exits with 1 if the median or the 95th percentile is above it.

The figure is for one core, so numpy gets one thread, as in a Ray actor of one CPU.

Every engine pads to 35 batch sizes, has four depths, has run at all of them (so that its report lists 140 rows), and
in each tick runs 32 steps at up to four batch sizes somewhere; acceptance differs between engines. Reports come out of
pickles, as Ray brings them, and replace those of the tick before in a window of each engine, as in the controller. That
happens outside the timed part. The garbage collector runs as usual, and its time within decide() counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import pickle
import random
import statistics
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from cluster.control.report_window import ReportWindow
from cluster.messages.directive import Applied, DepthTable
from cluster.messages.hello import ServingFacts
from cluster.messages.profile import Profile
from cluster.messages.report import Acceptance, EngineReport, Load, RankState, StepCounts
from cluster.policy.depth_policy import MeasuredDepthPolicy
from cluster.policy.plan import ReportingEngine

SIZES = (1, 2, 4, 8, *range(12, 65, 4), *range(72, 129, 8), *range(144, 257, 16))
DEPTHS = (0, 1, 3, 5)
TICK_S = 0.2
FACTS = ServingFacts(incarnation=1, candidate_depths=DEPTHS, batch_sizes=SIZES, max_running=256)


class Engine:
    """Counters that grow by a tick at a time."""

    def __init__(self, index: int, profile: Profile) -> None:
        self.name = f"engine-{index}"
        self.random = random.Random(index)
        self.profile = profile
        self.accepts = self.random.uniform(0.2, 0.9)
        self.reached, self.accepted = [0] * 5, [0] * 5
        self.steps = {(k, b): (10, profile.ms(k, b) / 100) for k in DEPTHS for b in SIZES}
        self.table = DepthTable(enabled=False)
        self.requests = 0

    def tick(self) -> EngineReport:
        centre = self.random.randrange(len(SIZES))
        for size in SIZES[max(0, centre - 2) : centre + 2]:
            depth, steps = self.table.depth(size), 8
            n, seconds = self.steps[depth, size]
            self.steps[depth, size] = (n + steps, seconds + steps * self.profile.ms(depth, size) / 1e3)
            left = steps * size
            self.requests += left
            for i in range(depth):
                self.reached[i] += left
                left = round(left * self.accepts)
                self.accepted[i] += left
        depths, batches = zip(*self.steps, strict=True)
        counts, seconds_of = zip(*self.steps.values(), strict=True)
        return EngineReport(
            engine=self.name,
            incarnation=1,
            accepted=True,
            applied=Applied(source="controller", table=self.table),
            load=Load(running=1, waiting=0, kv_usage=0.0),
            depth=0,
            acceptance=Acceptance(reached=tuple(self.reached), accepted=tuple(self.accepted)),
            steps=StepCounts(depth=depths, batch=batches, count=counts, timed=counts, seconds=seconds_of),
            tokens=self.requests,
            requests=self.requests,
            switches=0,
            ranks=(RankState(rank=0, revision=0, at_step=0, depth=0, switches=0),),
        )


class Tick(NamedTuple):
    """What one decide() took."""

    ms: float  # of processor time
    collecting_ms: float  # of it, in the garbage collector


class _Collector:
    """Adds up the processor time of collections."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds += time.process_time() - self._began


def ticks(engines: int, count: int) -> Iterator[Tick]:
    """Time of each decide() on one core."""
    profile = Profile.load("h200_llama8b_eagle3")
    policy, fleet = MeasuredDepthPolicy(), [Engine(i, profile) for i in range(engines)]
    windows = [ReportWindow() for _ in fleet]
    reporting: dict[str, ReportingEngine] = {}
    collector = _Collector()
    gc.callbacks.append(collector)
    try:
        for tick in range(count):
            for engine, window in zip(fleet, windows, strict=True):
                report = pickle.loads(pickle.dumps(engine.tick()))
                reporting[engine.name] = ReportingEngine(FACTS, report)
                window.add(tick * TICK_S, report)
            collector.seconds = 0.0
            start = time.process_time()
            plans = policy.decide(reporting, tick * TICK_S)
            yield Tick(1e3 * (time.process_time() - start), 1e3 * collector.seconds)
            for engine in fleet:
                engine.table = plans[engine.name].table
    finally:
        gc.callbacks.remove(collector)


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.thousand_engines")
    parser.add_argument("engines", nargs="?", type=int, default=1000)
    parser.add_argument("ticks", nargs="?", type=int, default=100)
    parser.add_argument("--bar-ms", type=float, help="processor time of a decision that must not be exceeded")
    arguments = parser.parse_args()
    first, *others = ticks(arguments.engines, 1 + arguments.ticks)
    times = [tick.ms for tick in others]
    figures = {
        "median_ms": statistics.median(times),
        "p95_ms": statistics.quantiles(times, n=20)[-1],
        "slowest_ms": max(times),
        "longest_collecting_ms": max(tick.collecting_ms for tick in others),
        "first_ms": first.ms,  # reads everything that the engines have counted
    }
    rounded = {name: round(ms, 1) for name, ms in figures.items()}
    print(json.dumps({"engines": arguments.engines, "ticks": arguments.ticks, **rounded}))
    bar_ms: float | None = arguments.bar_ms
    slow = [name for name in ("median_ms", "p95_ms") if bar_ms is not None and figures[name] > bar_ms]
    if slow:
        print(f"error: above the bar of {bar_ms:g} ms: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
