"""Milestones: third nodes that both ends of a pair measured."""

from __future__ import annotations

import numpy as np

from chart.inference.milestones import NO_BOUND, milestone_features
from chart.inference.observations import observe


def test_a_common_milestone_bounds_a_pair_and_its_own_value_does_not_matter() -> None:
    values = np.full((5, 5), np.nan)
    # Node 4 is a landmark; nodes 0 and 1 both measured 2, nobody but 4 measured 3.
    for first, second, value in ((0, 2, 10.0), (1, 2, 4.0), (0, 4, 50.0), (1, 4, 51.0), (3, 4, 7.0)):
        values[first, second] = values[second, first] = value
    landmarks = np.array([4])
    rows, columns = np.triu_indices(5, 1)
    base = np.zeros(len(rows))

    def told(own: float) -> np.ndarray:
        matrix = values.copy()
        matrix[0, 1] = matrix[1, 0] = own
        known = observe(list("abcde"), matrix, symmetric=True, floor=0.1)
        return np.array(milestone_features(known, landmarks, rows, columns, base))

    pair = int(np.flatnonzero((rows == 0) & (columns == 1))[0])
    least, second, greatest, ratio, common, near, mass = told(np.nan)[:, pair]
    assert np.isclose(np.exp(least), 14.0)
    assert second == NO_BOUND
    assert np.isclose(np.exp(greatest), 6.1)
    assert np.isclose(np.exp(ratio), 2.5)
    assert common == 1
    assert np.isclose(np.exp(near), 6.1)
    assert np.isfinite(mass)
    assert np.array_equal(told(3.0)[:, pair], told(900.0)[:, pair])
    alone = int(np.flatnonzero((rows == 0) & (columns == 3))[0])
    assert told(np.nan)[0, alone] == NO_BOUND
    assert told(np.nan)[4, alone] == 0
