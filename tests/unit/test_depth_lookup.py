import pytest

from cluster.messages.profile import StepTimes
from tests.unit.builders import table
from workers.sglang_patch.depth_lookup import DepthLookup, decode, encode


def test_a_table_travels_as_numbers() -> None:
    state = encode(table({1: 3, 9: 1, 33: 0}), revision=7)
    assert all(isinstance(value, int) for value in state.values())
    assert decode(state) == (table({1: 3, 9: 1, 33: 0}), 7)


def test_other_state_is_left_alone() -> None:
    assert decode({"pp_max_micro_batch_size": 4}) is None


def test_policy_looks_up_the_padded_batch() -> None:
    policy = DepthLookup([0, 1, 3], table({1: 3, 5: 1}))
    assert policy.get_steps_for_batch(3) == 3
    policy.prepare_for([8, 2, 1], known=None)
    assert [policy.get_steps_for_batch(b) for b in (1, 2, 3, 8, 9)] == [3, 3, 1, 1, 1]
    assert policy.padded(9) == 9


def test_a_depth_that_was_not_worth_a_graph_gives_way_to_the_next_lower_one() -> None:
    known = StepTimes(step_ms={0: {1: 10, 8: 10}, 1: {1: 11, 8: 12}, 3: {1: 13, 8: 99}})
    policy = DepthLookup([0, 1, 3], table({1: 3}))
    policy.prepare_for([1, 8], known)
    assert policy.graph_sizes_of == {0: (1, 8), 1: (1, 8), 3: (1,)}
    assert [policy.get_steps_for_batch(b) for b in (1, 2, 8, 9)] == [3, 1, 1, 3]


def test_held_off_no_table_is_followed() -> None:
    policy = DepthLookup([0, 1, 3], table())
    policy.held_off = True
    assert policy.get_steps_for_batch(1) == 0


def test_policy_refuses_a_depth_without_a_state() -> None:
    policy = DepthLookup([0, 1, 3], table())
    with pytest.raises(ValueError, match=r"\[2\].*\[0, 1, 3\]"):
        policy.put(table({1: 2}), 1)
    assert (policy.table, policy.revision) == (table(), 0)


def test_what_a_rank_has_seen_never_changes_the_depth() -> None:
    policy = DepthLookup([0, 1, 3], table())
    policy.on_verify_complete([0, 0, 0], batch_size=3)
    assert policy.get_steps_for_batch(3) == 3
