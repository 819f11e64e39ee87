"""Milestones: nodes that some measured, and what those who did have in common (Netvigator).

Sharma et al., Estimating Network Proximity and Latency, CCR 36(3) 2006. Landmarks are measured by all; any other node
that both ends of a pair happened to measure bounds the pair just so, as does a router that traces of both found, and
one near to both tells the most. The pair's own value is not used: a milestone is a third node or a router.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chart.inference.observations import Flags, Floats, Indices, Observations
from chart.inference.routers import usable

# How far beyond the landmarks' bound, in logarithms, and how weak, "no common milestone" is taken to be.
NO_BOUND = 5.0
NO_RATIO = -1.0
LEAST_WEIGHT = 1e-9


def milestone_features(
    observations: Observations, landmarks: Indices, rows: Indices, columns: Indices, base: Floats
) -> list[Floats]:
    """What common milestones say of each pair: both least sums against the base, the greatest difference and ratio,
    how many there are, the difference where near ones count most, and how near they are."""
    nodes, floor = observations.count, observations.floor
    shape = (nodes, nodes)
    least, second = np.full(shape, np.inf), np.full(shape, np.inf)
    greatest, ratio, common, weighted, weights = (np.zeros(shape) for _ in range(5))
    for ends, value, speaks in _milestones(observations, landmarks):
        both = np.ix_(ends, ends)
        total = np.where(speaks, value[:, None] + value[None, :], np.inf)
        difference = np.where(speaks, np.abs(value[:, None] - value[None, :]), 0.0)
        logs = np.log(np.maximum(value, 3 * floor))
        inverse = 1 / np.maximum(value, 5 * floor)
        weight = np.where(speaks, inverse[:, None] * inverse[None, :], 0.0)
        second[both] = np.minimum(second[both], np.maximum(least[both], total))
        least[both] = np.minimum(least[both], total)
        greatest[both] = np.maximum(greatest[both], difference)
        ratio[both] = np.maximum(ratio[both], np.where(speaks, np.abs(logs[:, None] - logs[None, :]), 0.0))
        common[both] += speaks
        weighted[both] += weight * difference
        weights[both] += weight

    def bound(sums: Floats) -> Floats:
        told = sums[rows, columns]
        return np.where(np.isfinite(told), np.log(np.maximum(told, floor)) - base, NO_BOUND)

    some = common[rows, columns] > 0
    mass = weights[rows, columns]
    return [
        bound(least),
        bound(second),
        np.where(some, np.log(greatest[rows, columns] + floor), -NO_BOUND),
        np.where(some, ratio[rows, columns], NO_RATIO),
        common[rows, columns],
        np.where(some, np.log(weighted[rows, columns] / np.maximum(mass, 1e-300) + floor), -NO_BOUND),
        np.log(mass + LEAST_WEIGHT),
    ]


def _milestones(observations: Observations, landmarks: Indices) -> Iterator[tuple[Indices, Floats, Flags]]:
    """(nodes that measured a milestone, their values, which pairs of them it may speak for)."""
    for milestone in np.setdiff1d(np.arange(observations.count), landmarks):
        column = observations.values[:, milestone]
        ends = np.flatnonzero(np.isfinite(column))
        if len(ends) >= 2:
            yield ends, column[ends], np.ones((len(ends), len(ends)), dtype=bool)
    yield from usable(observations)
