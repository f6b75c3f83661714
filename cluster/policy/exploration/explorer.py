"""Lets one engine of a cohort at a time explore, and pays for it from a credit."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log1p

from cluster.messages.settings import PolicySettings
from cluster.policy import explanation
from cluster.policy.depth_choice import DepthChoices
from cluster.policy.exploration import options
from cluster.policy.exploration.engine_view import EngineViews
from cluster.policy.exploration.exploration import Exploration
from cluster.policy.exploration.schedule import RecheckSchedule, TrialSchedule

LONGEST_S = 2.0  # longest exploration, in seconds
SPENT = 0.5  # part of `probe_share` that is spent, because exploring may cost more than expected
CHEAP = 0.25  # part of `probe_share` below which rechecks are cheap enough
CALM_STEPS = 1000  # steps between disappointing rechecks, however cheap: each changes depth twice
ENGINES_PER_TICK = 8  # engines considered in a tick
FIRST_CREDIT_S = 0.5  # goodput that may be spent before any credit was earned, as seconds of one engine


class Explorer:
    """Plans the explorations of one cohort."""

    def __init__(self) -> None:
        self._running: Exploration | None = None
        self._credit_s = FIRST_CREDIT_S
        self._trials = TrialSchedule()
        self._rechecks = RecheckSchedule()
        self._turn = 0

    def explore(
        self,
        now: float,
        tick_s: float,
        engines: Sequence[str],
        views: EngineViews,
        choices: DepthChoices,
        settings: PolicySettings,
    ) -> Exploration | None:
        """The exploration that holds from now until the next tick, if any.

        `engines` are those that run steps; a tick takes `tick_s` seconds.
        """
        if settings.probe_share == 0 or not engines:
            return None
        earned = SPENT * settings.probe_share * len(engines)
        self._credit_s = min(self._credit_s + earned * tick_s, max(FIRST_CREDIT_S, earned))
        if (running := self._running) is not None:
            if now < running.until and running.engine in choices:
                return running
            # The report at the end of a tick holds what the tick brought, and is read one tick later.
            if now < running.until + tick_s:
                return None
            undecided = running.engine in engines and views.of(running.engine).undecided
            self._settle(now, running, choices, undecided, settings)
        self._running = self._next(now, tick_s, engines, views, settings)
        return self._running

    def forget(self, engine: str) -> None:
        """Drop an engine that is gone."""
        self._rechecks.forget(engine)

    def _next(
        self, now: float, tick_s: float, engines: Sequence[str], views: EngineViews, settings: PolicySettings
    ) -> Exploration | None:
        """The first exploration that is useful for an engine and that the credit allows. Engines take turns."""
        for _ in range(min(ENGINES_PER_TICK, len(engines))):
            self._turn = (self._turn + 1) % len(engines)
            engine = engines[self._turn]
            seen, log_gain = views.of(engine), log1p(settings.switch_gain)
            depths = options.trials(seen, log_gain, lambda bucket, depth: self._trials.may_try(now, bucket, depth))
            is_trial = bool(depths)
            if not depths and self._rechecks.due(now, engine, settings.probe_shortest_s):
                depths = options.rechecks(seen, log_gain)
            if not depths:
                continue
            ticks = max(1, ceil(min(options.seconds(seen, depths), LONGEST_S) / tick_s))
            cost_s = options.loss(seen, depths) * ticks * tick_s
            if cost_s > self._credit_s:
                continue
            self._credit_s -= cost_s
            if is_trial:
                self._trials.made(now, depths)
            return Exploration(
                engine=engine,
                depths=depths,
                instead_of={bucket: seen.current(bucket) for bucket in depths},
                from_off=not any(seen.depths[seen.current(bucket)] for bucket in depths),
                until=now + (ticks - 0.5) * tick_s,
                cost_s=cost_s,
                step_s=seen.step_s,
                reason=explanation.of_exploration(seen, depths, "trial" if is_trial else "recheck", ticks),
            )
        return None

    def _settle(self, now: float, done: Exploration, choices: DepthChoices, undecided: bool, settings: PolicySettings) -> None:
        """After an exploration of deeper depths, decide from the engine's choice when it rechecks next."""
        deeper = all(depth > done.instead_of[bucket] for bucket, depth in done.depths.items())
        if done.engine not in choices or not deeper:
            return
        shortest_s, chosen = settings.probe_shortest_s, choices.of(done.engine)
        if undecided and done.from_off:
            # An engine that is off shows drafts only while it explores: the next recheck adds to what this one brought.
            self._rechecks.undecided(now, done.engine, shortest_s)
        elif any(chosen[bucket] > depth for bucket, depth in done.instead_of.items()):
            self._rechecks.paid(now, done.engine, shortest_s)
        else:
            self._rechecks.disappointed(now, done.engine, shortest_s, self._longest_s(done, settings))

    def _longest_s(self, done: Exploration, settings: PolicySettings) -> float:
        """Longest interval between rechecks that cost as much as this one."""
        shortest_s, longest_s = settings.probe_shortest_s, max(settings.probe_shortest_s, settings.probe_longest_s)
        cheap_enough_s = done.cost_s / (CHEAP * settings.probe_share)
        return min(longest_s, max(shortest_s, CALM_STEPS * done.step_s, cheap_enough_s))
