"""Weighted medians of many groups at once."""

from __future__ import annotations

import numpy as np

from cluster.policy.arrays import Floats, Indices


def weighted_medians(values: Floats, weights: Floats, group: Indices) -> Floats:
    """Weighted median of each group 0, 1, ... No group may be empty. Between two halves of equal weight it is their mean."""
    order = np.lexsort((values, group))
    values, below = values[order], np.cumsum(weights[order])
    ends = np.cumsum(np.bincount(group))
    half = (below[ends - 1] + np.concatenate([[0.0], below[ends[:-1] - 1]])) / 2
    low = np.searchsorted(below, half)
    high = low + (below[low] == half)
    result: Floats = (values[low] + values[high]) / 2
    return result
