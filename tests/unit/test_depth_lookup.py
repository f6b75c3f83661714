"""The depth of a decode step: from the table, the batch's size, and whether a request of it is cold."""

import pytest

from cluster.messages.profile import StepTimes
from tests.unit.builders import table
from workers.sglang_patch.depth_lookup import DepthLookup, StepDepth


def depth(lookup: DepthLookup, batch: int) -> int:
    """What SGLang is told for a batch without a cold request."""
    lookup.begin_step(batch, any_cold=False)
    return lookup.get_steps_for_batch(batch)


def test_it_looks_up_the_padded_batch() -> None:
    lookup = DepthLookup([0, 1, 3], table({1: 3, 5: 1}))
    assert depth(lookup, 3) == 3
    lookup.prepare_for([8, 2, 1], known=None)
    assert [depth(lookup, b) for b in (1, 2, 3, 8, 9)] == [3, 3, 1, 1, 1]
    assert lookup.padded(9) == 9


def test_a_depth_that_was_not_worth_a_graph_gives_way_to_the_next_lower_one() -> None:
    known = StepTimes(step_ms={0: {1: 10, 8: 10}, 1: {1: 11, 8: 12}, 3: {1: 13, 8: 99}})
    lookup = DepthLookup([0, 1, 3], table({1: 3}))
    lookup.prepare_for([1, 8], known)
    assert lookup.graph_sizes_of == {0: (1, 8), 1: (1, 8), 3: (1,)}
    assert [depth(lookup, b) for b in (1, 2, 8, 9)] == [3, 1, 1, 3]


@pytest.mark.parametrize(
    ("told", "any_cold", "expected"),
    [
        (3, False, StepDepth(3, may_defer=False)),
        (3, True, StepDepth(0, may_defer=False)),  # the whole draft-extend, so that the next step can draft
        (0, False, StepDepth(0, may_defer=True)),
        (0, True, StepDepth(0, may_defer=True)),
    ],
)
def test_a_cold_request_runs_a_step_at_depth_0_before_it_is_drafted_for(told: int, any_cold: bool, expected: StepDepth) -> None:
    lookup = DepthLookup([0, 1, 3], table({1: told}))
    assert lookup.begin_step(2, any_cold) == expected
    assert lookup.get_steps_for_batch(2) == expected.depth


def test_a_step_is_decided_once() -> None:
    lookup = DepthLookup([0, 1, 3], table({1: 3}))
    lookup.begin_step(1, any_cold=False)
    lookup.put(table({1: 1}), revision=2)
    assert [lookup.get_steps_for_batch(1), depth(lookup, 1)] == [3, 1]


def test_it_refuses_a_depth_without_a_state() -> None:
    lookup = DepthLookup([0, 1, 3], table())
    with pytest.raises(ValueError, match=r"\[2\].*\[0, 1, 3\]"):
        lookup.put(table({1: 2}), 1)
    assert (lookup.table, lookup.revision) == (table(), 0)


def test_what_a_rank_has_seen_never_changes_the_depth() -> None:
    lookup = DepthLookup([0, 1, 3], table())
    lookup.on_verify_complete([0, 0, 0], batch_size=3)
    assert depth(lookup, 3) == 3
