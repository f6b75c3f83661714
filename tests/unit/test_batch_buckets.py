"""Into which bucket a batch size falls."""

from __future__ import annotations

import pytest

from cluster.policy.batch_buckets import BatchBuckets


def test_padded_sizes_are_the_buckets() -> None:
    buckets = BatchBuckets.of((8, 1, 4, 2), max_running=256)
    assert buckets.floors == (1, 2, 4, 8)
    assert buckets.sizes == (1.0, 2.0, 4.0, 8.0)


def test_without_padding_there_are_eight_to_an_octave() -> None:
    buckets = BatchBuckets.of((), max_running=64)
    assert buckets.floors == (*range(1, 17), *range(18, 33, 2), *range(36, 65, 4))
    assert (buckets.sizes[0], buckets.sizes[16]) == (1.0, 18.5)


@pytest.mark.parametrize(("batch", "floor"), [(1, 2), (2, 2), (7, 4), (8, 8), (1000, 8)])
def test_a_batch_size_falls_into_the_bucket_below_it(batch: int, floor: int) -> None:
    buckets = BatchBuckets.of((2, 4, 8), max_running=8)
    assert buckets.floors[buckets.find(batch)] == floor
    assert buckets.find_all([batch]).tolist() == [buckets.find(batch)]
