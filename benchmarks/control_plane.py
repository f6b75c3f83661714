"""What five directives and reports a second cost an engine's decode throughput.

    python -m benchmarks.control_plane [--rounds 80] [--seconds 1]

One engine on the CPU with the tiny pair decodes a full batch all the time. Windows with exchanges and windows without them
alternate. Exchanges come ten times as often as a controller's, so that their cost stands out from the machine's noise, and a
tenth of it is reported. The figure is the median ratio of steps a second over all pairs of neighbouring windows: the machine's
speed drifts, so only neighbours are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time

from cluster.messages.directive import DepthTable, Directive
from cluster.messages.report import EngineReport
from cluster.messages.spec import EngineSpec
from workers.directed_engine import DirectedEngine
from workers.sglang_patch.engine import SGLangEngine

BATCH = 8
TICK_S = 0.2  # the controller's
MORE_OFTEN = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=80, help="pairs of windows")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    args = parser.parse_args()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    spec = EngineSpec(name="bench", model="tiny", served_model_name="bench", device="cpu", fallback=DepthTable(enabled=False))
    face = SGLangEngine()
    face.start(spec, known=None)
    loop.run_until_complete(_measure(DirectedEngine(spec, face), args.rounds, args.seconds))
    face.shutdown()


async def _measure(engine: DirectedEngine, rounds: int, seconds: float) -> None:
    await engine.prove_patch()
    sequence = itertools.count(1)

    async def exchange() -> float:
        """Time of one exchange, in seconds. Its table is always the same, as most of a controller's are."""
        table = DepthTable(depth_by_batch={1: 1})
        began = time.perf_counter()
        await engine.exchange(Directive(incarnation=1, sequence=next(sequence), table=table, lease_s=3600, reason="benchmark"))
        return time.perf_counter() - began

    await exchange()
    load = [asyncio.create_task(_decode_for_ever(engine, seed)) for seed in range(BATCH)]
    await asyncio.sleep(3)
    exchanges: list[float] = []

    async def window(control: bool) -> float:
        """Decode steps a second over one window. Steps right after a prefill are left out, as they hold its time too."""
        first, began = _timed(await engine.report(accepted=True)), time.perf_counter()
        while (left := began + seconds - time.perf_counter()) > 0:
            await asyncio.sleep(min(TICK_S / MORE_OFTEN, left))
            if control:
                exchanges.append(await exchange())
        last = _timed(await engine.report(accepted=True))
        return (last[0] - first[0]) / (last[1] - first[1])

    ratios, rates = [], []
    for i in range(rounds):
        # The order alternates too, so that a steady drift cancels.
        first, second = await window(control=bool(i % 2)), await window(control=not i % 2)
        with_control, without = (first, second) if i % 2 else (second, first)
        ratios.append(with_control / without)
        rates.append(without)
    for task in load:
        task.cancel()
    cost = (1 - statistics.median(ratios)) / MORE_OFTEN
    spread = statistics.stdev(ratios) / len(ratios) ** 0.5 / MORE_OFTEN
    rate, exchange_ms = statistics.median(rates), 1e3 * statistics.median(exchanges)
    print(f"without: {rate:.1f} steps/s at batch {BATCH}; an exchange takes {exchange_ms:.2f} ms")
    print(f"{1 / TICK_S:.0f} exchanges a second cost {cost:+.2%} of it (standard error {spread:.2%}, {rounds} pairs)")


def _timed(report: EngineReport) -> tuple[int, float]:
    """Timed steps at the full batch, and their seconds."""
    steps = report.steps
    rows = [i for i, batch in enumerate(steps.batch) if batch == BATCH]
    return sum(steps.timed[i] for i in rows), sum(steps.seconds[i] for i in rows)


async def _decode_for_ever(engine: DirectedEngine, seed: int) -> None:
    while True:
        await engine.face.generate([[5 + seed] * 16], 1500)


if __name__ == "__main__":
    main()
