"""Isotonic regression: the closest values that never fall."""

from __future__ import annotations

import numpy as np

from cluster.policy.arrays import Floats

ROUNDS = 4


def monotone(values: Floats, weights: Floats) -> Floats:
    """Close to `values`, by weight, but never falling along either of the two axes."""
    values = values.copy()
    for _ in range(ROUNDS):
        if (np.diff(values, axis=0) >= 0).all() and (np.diff(values, axis=1) >= 0).all():
            return values
        for row in np.flatnonzero((np.diff(values, axis=1) < 0).any(axis=1)):
            values[row] = rising(values[row].tolist(), weights[row].tolist())
        for column in np.flatnonzero((np.diff(values, axis=0) < 0).any(axis=0)):
            values[:, column] = rising(values[:, column].tolist(), weights[:, column].tolist())
    # Alternating between the axes gets close. The running maximum removes what is left.
    result: Floats = np.maximum.accumulate(np.maximum.accumulate(values, axis=0), axis=1)
    return result


def rising(values: list[float], weights: list[float]) -> list[float]:
    """Weighted isotonic regression by pooling adjacent violators (Ayer et al., 1955): neighbours that fall get their mean."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (v1, w1, n1), (v2, w2, n2) = pools[-2], pools[-1]
            pools[-2:] = [((v1 * w1 + v2 * w2) / (w1 + w2), w1 + w2, n1 + n2)]
    return [value for value, _, n in pools for _ in range(n)]
