"""Why a table was chosen, in one line for people."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, expm1
from typing import Literal

from cluster.policy.exploration.engine_view import EngineView
from cluster.policy.goodput import GoodputEstimate


def of_choice(estimate: GoodputEstimate, engine: int, bucket: int, depth: int) -> str:
    """Why an engine has its depth at a batch bucket. All arguments but the first are indices."""
    log_tokens: list[float] = estimate.log_tokens[engine].tolist()
    log_s: list[float] = estimate.step_times.log_s[:, bucket].tolist()
    rate = [tokens - seconds for tokens, seconds in zip(log_tokens, log_s, strict=True)]
    versus = ""
    if len(rate) > 1:
        other = max((i for i in range(len(rate)) if i != depth), key=rate.__getitem__)
        versus = f", {100 * expm1(rate[depth] - rate[other]):+.1f}% over depth {estimate.depths[other]}"
    k, batch = estimate.depths[depth], estimate.buckets.floors[bucket]
    acceptance = " ".join([f"{a:.2f}" for a in estimate.acceptance.mean[engine, : max(1, k)].tolist()])
    return (
        f"batch {batch}: depth {k} yields {batch * exp(rate[depth]):.0f} tok/s{versus} (acceptance {acceptance}; "
        f"{exp(log_tokens[depth]):.2f} tokens in {1e3 * exp(log_s[depth]):.2f} ms)"
    )


def of_exploration(view: EngineView, depths: Mapping[int, int], kind: Literal["trial", "recheck"], ticks: int) -> str:
    """Why an engine tries these depths (indices by bucket) for `ticks` ticks: the figures of its most frequent bucket."""
    bucket = max(depths, key=lambda b: view.shares[b])
    tried, present = view.depths[depths[bucket]], view.depths[view.current(bucket)]
    percent = 100 * expm1(view.gain(bucket, depths[bucket]))
    acceptance, deviation = view.acceptance[max(0, tried - 1)], view.deviation[max(0, tried - 1)]
    return (
        f"exploration ({kind}, {ticks} tick{'s' if ticks > 1 else ''}): depth {tried} instead of {present} at batch "
        f"{view.buckets.floors[bucket]}, expected {percent:+.0f}% goodput at acceptance {acceptance:.2f}±{deviation:.2f} "
        f"of its last position"
    )
