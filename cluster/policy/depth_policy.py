"""The policy of mode auto: from the engines' counters to a depth for each batch size.

`MeasuredDepthPolicy.decide` is the whole chain, top to bottom. Each step names the file that does it.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.messages.profile import StepTimes
from cluster.messages.settings import PolicySettings
from cluster.policy.acceptance import AcceptanceModel
from cluster.policy.exploration.engine_view import EngineViews
from cluster.policy.goodput import GoodputEstimate
from cluster.policy.known_engines import KnownEngines
from cluster.policy.plan import Plan, ReportingEngine

FIRST_TICK_S = 0.2  # assumed length of the first tick, in seconds
LONGEST_TICK_S = 10.0  # longest time that a tick counts for, in seconds


class MeasuredDepthPolicy:
    """Gives every engine, at every batch size, the depth that yields most accepted tokens a second.

    Implements `cluster.policy.plan.Policy`. What it has learnt survives a change of its settings.
    """

    def __init__(self, settings: PolicySettings | None = None, prior: StepTimes | None = None) -> None:
        """`prior` holds step times to start from, for engines that report none of their own."""
        self._settings = settings or PolicySettings()
        self._engines = KnownEngines(prior)
        self._acceptance = AcceptanceModel()
        self._now: float | None = None

    def configure(self, settings: PolicySettings) -> None:
        """Follow other settings from the next tick on."""
        self._settings = settings

    def decide(self, reporting: Mapping[str, ReportingEngine], now: float) -> dict[str, Plan]:
        """One tick: learn from the reports, choose for every engine, and let one of each cohort explore."""
        settings, tick_s = self._settings, self._tick_s(now)

        # 1. New counts: what each report adds to the one before (report_delta.py), by cohort (cohort.py).
        new = self._engines.read(now, reporting)
        for absent in self._engines.forget_absent(now):
            self._acceptance.forget(absent)

        # 2. Acceptance by engine and draft position, pooled over the fleet (acceptance.py).
        self._acceptance.observe(now, new.drafts, settings.half_life_s)

        plans: dict[str, Plan] = {}
        for cohort, counts in new.cohorts.items():
            engines = counts.engines
            acceptance = self._acceptance.estimate(engines, max(1, *cohort.depths))

            # 3. Step times by depth and batch bucket, and which depths can be run at all (step_time.py, runnable_depths.py).
            cohort.observe(now, counts.steps)
            step_times, runnable = cohort.step_times.fit(now), cohort.runnable_depths.mask(now)

            # 4. Goodput by engine, depth and batch bucket (goodput.py).
            estimate = GoodputEstimate(cohort.depths, cohort.buckets, acceptance, step_times, runnable)
            goodput = estimate.allowed(settings.tpot_limit_ms)

            # 5. The depth of most goodput, with hysteresis, where the engine's steps run (depth_choice.py, batch_history.py).
            chosen = cohort.choices.update(now, engines, goodput, cohort.batch_history.shares(engines), settings)

            # 6. One busy engine may try another depth in order to learn (exploration/explorer.py).
            busy, latest = cohort.batch_history.busy(now, engines), cohort.batch_history.latest(engines)
            views = EngineViews(engines, estimate, chosen, latest)
            exploration = cohort.explorer.explore(now, tick_s, busy, views, cohort.choices, settings)

            # 7. A table and a reason for each engine (planner.py, explanation.py).
            plans |= cohort.planner.plans(now, engines, estimate, chosen, latest, exploration)
        return {engine: plans[engine] for engine in reporting}

    def _tick_s(self, now: float) -> float:
        """Time since the tick before, in seconds."""
        before, self._now = self._now, now
        return FIRST_TICK_S if before is None or now <= before else min(now - before, LONGEST_TICK_S)
