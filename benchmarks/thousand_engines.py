"""`python -m benchmarks.thousand_engines`: time of one decide() for a thousand engines that all have something new to say.

Every engine pads to 35 batch sizes, has four depths, has run at all of them (so that its report lists 140 entries), and
in each tick runs 30 steps at four batch sizes somewhere; acceptance differs between engines. Reports are made outside the
timed part, as they come ready over the wire.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator

from cluster.goodput import GoodputPolicy
from cluster.profile import Profile
from cluster.protocol import Acceptance, Applied, DepthTable, EngineReport, Load, RankState, StepTime

SIZES = (1, 2, 4, 8, *range(12, 65, 4), *range(72, 129, 8), *range(144, 257, 16))
DEPTHS = (0, 1, 3, 5)


class Engine:
    """Counters that grow by a tick of 200 ms at a time."""

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
        return EngineReport(
            engine=self.name,
            incarnation=1,
            accepted=True,
            applied=Applied(source="controller", table=self.table),
            load=Load(running=1, waiting=0, max_running=256, kv_usage=0.0),
            depth=0,
            candidate_depths=DEPTHS,
            batch_sizes=SIZES,
            acceptance=tuple(Acceptance(reached=r, accepted=a) for r, a in zip(self.reached, self.accepted, strict=True)),
            steps=tuple(StepTime(depth=k, batch=b, steps=n, timed=n, seconds=s) for (k, b), (n, s) in self.steps.items()),
            tokens=self.requests,
            requests=self.requests,
            switches=0,
            ranks=(RankState(rank=0, revision=0, at_step=0, depth=0, switches=0),),
        )


def ticks(engines: int, count: int) -> Iterator[float]:
    """Seconds of processor time of each decide(), on one core."""
    profile = Profile.load("h200_llama8b_eagle3")
    policy, fleet = GoodputPolicy(), [Engine(i, profile) for i in range(engines)]
    for tick in range(count):
        reports = {engine.name: engine.tick() for engine in fleet}
        start = time.process_time()
        plans = policy.decide(reports, tick * 0.2)
        yield time.process_time() - start
        for engine in fleet:
            engine.table = plans[engine.name].table


if __name__ == "__main__":
    engines = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first, *times = [1e3 * t for t in ticks(engines, 60)]
    late = statistics.quantiles(times, n=20)[-1]
    print(
        f"{engines} engines: median {statistics.median(times):.0f} ms, 95% below {late:.0f} ms, slowest {max(times):.0f} ms; "
        f"the first tick, which takes in all that they ever counted, {first:.0f} ms"
    )
