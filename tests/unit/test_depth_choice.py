"""Properties of the choice of a depth, whatever the figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.policy.depth_choice import choose
from cluster.policy.goodput import expected_tokens, within_limit

DEPTHS = (0, 1, 2, 3, 5, 7)
chance = st.floats(0.0, 1.0)
acceptances = st.lists(chance, min_size=7, max_size=7)
times = st.lists(st.floats(0.001, 1.0), min_size=len(DEPTHS), max_size=len(DEPTHS)).map(sorted)


def chosen(acceptance: list[float], times_s: list[float], current: int = -1, gain: float = 0.02) -> int:
    log_goodput = np.log(expected_tokens(np.array([acceptance]), DEPTHS)) - np.log(times_s)
    index = choose(log_goodput[:, :, None], np.array([[current]]), np.array([[True]]), np.ones((1, 1)), gain, 0.3)
    return int(index[0, 0])


def test_expected_tokens_by_hand() -> None:
    assert expected_tokens(np.array([0.5, 0.5, 1.0]), [0, 1, 2, 3]) == pytest.approx([1.0, 1.5, 1.75, 2.0])


@given(acceptances, acceptances, times, st.integers(-1, len(DEPTHS) - 1))
@settings(max_examples=100)
def test_higher_acceptance_never_lowers_the_depth(a: list[float], b: list[float], times_s: list[float], current: int) -> None:
    low, high = np.minimum(a, b).tolist(), np.maximum(a, b).tolist()
    assert chosen(high, times_s, current) >= chosen(low, times_s, current)


@given(acceptances, times, st.floats(1.0, 2.0), st.integers(-1, len(DEPTHS) - 1))
@settings(max_examples=100)
def test_dearer_draft_steps_never_raise_the_depth(a: list[float], times_s: list[float], dearer: float, current: int) -> None:
    dear = [t * dearer**depth for t, depth in zip(times_s, DEPTHS, strict=True)]
    assert chosen(a, dear, current) <= chosen(a, times_s, current)


@given(acceptances, times, st.integers(0, len(DEPTHS) - 1))
@settings(max_examples=100)
def test_a_depth_is_only_left_for_a_clear_gain(a: list[float], times_s: list[float], current: int) -> None:
    goodput = expected_tokens(np.array(a), DEPTHS) / np.array(times_s)
    taken = chosen(a, times_s, current, gain=0.02)
    assert taken == current or goodput[taken] >= 1.02 * goodput[current] * (1 - 1e-9)


def test_the_dwell_time_holds_a_depth() -> None:
    log_goodput = np.log(np.array([[[1.0], [2.0]]]))
    held = choose(log_goodput, np.array([[0]]), np.array([[False]]), np.ones((1, 1)), 0.02, 0.3)
    assert held[0, 0] == 0


def test_a_tpot_limit_rules_out_slower_depths_where_any_meets_it() -> None:
    log_goodput = np.zeros((2, 2))
    tpot_s = np.array([[0.010, 0.030], [0.020, 0.040]])
    allowed = within_limit(log_goodput, tpot_s, limit_s=0.015)
    assert np.isfinite(allowed).tolist() == [[True, True], [False, True]]
