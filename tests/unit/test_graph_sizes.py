"""Which depths are prepared for at which batch sizes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.messages.profile import Profile, StepTimes
from workers.sglang_patch.graph_sizes import BEST_ACCEPTANCE, worth_preparing

DEPTHS, BATCHES = (0, 1, 3, 5), (1, 8, 64)


def test_a_depth_that_costs_more_than_it_can_bring_is_left_out() -> None:
    # At batch 64 five drafts cost six times a plain step: no acceptance below 1 pays for that.
    times = StepTimes(step_ms={0: {1: 10, 64: 10}, 1: {1: 12, 64: 15}, 5: {1: 20, 64: 61}})
    assert worth_preparing(times, (0, 1, 5), (1, 64)) == {0: (1, 64), 1: (1, 64), 5: (1,)}


def test_what_was_not_measured_is_kept() -> None:
    times = StepTimes(step_ms={0: {1: 10, 64: 10}})
    assert worth_preparing(times, (0, 3), (1, 64)) == {0: (1, 64), 3: (1, 64)}


def test_the_smallest_batch_size_is_always_prepared() -> None:
    times = StepTimes(step_ms={0: {1: 10, 64: 10}, 3: {1: 100, 64: 100}})
    assert worth_preparing(times, (0, 3), (1, 64))[3] == (1,)


def test_on_the_h200_all_but_one_place_can_pay() -> None:
    profile = Profile.load("h200_llama8b_eagle3")
    prepared = worth_preparing(profile, profile.depths, profile.batches)
    # Depth 5 at batch 256: at no acceptance better than depth 3 and depth 7 both.
    assert prepared == {depth: profile.batches[:-1] if depth == 5 else profile.batches for depth in profile.depths}


@settings(deadline=None)
@given(
    st.lists(st.floats(1, 100), min_size=12, max_size=12),
    st.lists(st.floats(0, BEST_ACCEPTANCE), min_size=5, max_size=5),
)
def test_the_best_depth_is_never_left_out(ms: list[float], acceptance: list[float]) -> None:
    times = StepTimes(step_ms={k: {b: ms[i * len(BATCHES) + j] for j, b in enumerate(BATCHES)} for i, k in enumerate(DEPTHS)})
    prepared = worth_preparing(times, DEPTHS, BATCHES)
    for batch in BATCHES:
        tokens = {k: 1.0 for k in DEPTHS}
        for k in DEPTHS:
            chance = 1.0
            for a in acceptance[:k]:
                chance *= a
                tokens[k] += chance
        best = max(DEPTHS, key=lambda k: (tokens[k] / times.ms(k, batch), -k))
        assert batch in prepared[best]
