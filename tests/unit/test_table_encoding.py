from tests.unit.builders import table
from workers.sglang_patch.table_encoding import decode, encode


def test_a_table_travels_as_numbers() -> None:
    state = encode(table({1: 3, 9: 1, 33: 0}), revision=7)
    assert all(isinstance(value, int) for value in state.values())
    assert decode(state) == (table({1: 3, 9: 1, 33: 0}), 7)


def test_other_state_is_left_alone() -> None:
    assert decode({"pp_max_micro_batch_size": 4}) is None
