"""Landmarks: nodes that (nearly) everybody measures, and what their rows say about a pair (Netvigator).

Sharma et al., Estimating Network Proximity and Latency, CCR 36(3) 2006: with d_ik the value between node i and landmark
k, the least sum d_ik + d_jk bounds d_ij from above and the greatest difference from below; near landmarks tell the
most. Nodes that many but not all measure (milestones) are landmarks whose unknown entries are left out.
"""

from __future__ import annotations

import numpy as np

from chart.inference import routers
from chart.inference.observations import Completion, Floats, Indices, Observations

# A node is a landmark when this share of the others measured it.
LANDMARK_SHARE = 0.8
LEAST_LANDMARKS = 3
MOST_LANDMARKS = 40
# Measured columns stand for landmarks when there are none, as Netvigator's milestones do.
MILESTONES = 24
# Value, in floors, added before logarithms so that differences among the nearest do not rule the choice.
NEAR = 20.0


def landmarks_of(observations: Observations) -> Indices:
    """Landmarks, else the nodes measured by most; those with most measurements first."""
    degree = observations.measured.sum(0)
    order = np.argsort(-degree, kind="stable")
    full = [node for node in order if degree[node] >= LANDMARK_SHARE * (observations.count - 1)]
    chosen = full[:MOST_LANDMARKS] if len(full) >= LEAST_LANDMARKS else list(order[: min(MILESTONES, len(order))])
    return np.array(chosen, dtype=np.intp)


def signatures(observations: Observations, landmarks: Indices) -> Floats:
    """Values towards each landmark, nodes x landmarks; NaN where not measured and for a landmark itself."""
    return observations.values[:, landmarks]


def bounds(own: Floats, other: Floats) -> tuple[Floats, Floats]:
    """(lower, upper) triangle bounds of pairs from the signatures of their ends; NaN without a common landmark."""
    total = own + other
    known = np.isfinite(total).any(1)
    upper = np.where(known, np.where(np.isfinite(total), total, np.inf).min(1), np.nan)
    lower = np.where(known, np.nan_to_num(np.abs(own - other), nan=-1.0).max(1), np.nan)
    return np.maximum(lower, 0.0), upper


def node_distance(values: Floats, floor: float) -> Floats:
    """How unlike two nodes' signatures are: mean difference of logarithms over common landmarks, 0 for twins.

    Few common landmarks make nodes unlike: a short agreement proves little.
    """
    logs = np.log(np.maximum(values, 3 * floor))
    count = len(values)
    total = np.zeros((count, count))
    common = np.zeros((count, count))
    for column in logs.T:
        difference = np.minimum(np.abs(column[:, None] - column[None, :]), 0.5)
        known = np.isfinite(difference)
        total += np.where(known, difference, 0.0)
        common += known
    distance = np.where(common > 0, total / np.maximum(common, 1), 1.0) + 0.3 / (common + 0.1) ** 2
    np.fill_diagonal(distance, 0.0)
    return distance


def rough_distance(values: Floats, floor: float) -> Floats:
    """A first guess of all pairs from signatures: the mean of both triangle bounds, near landmarks weighing most."""
    count = len(values)
    upper = np.full((count, count), np.inf)
    weighted = np.zeros((count, count))
    weights = np.zeros((count, count))
    for column in values.T:
        total = column[:, None] + column[None, :]
        known = np.isfinite(total)
        upper = np.where(known, np.minimum(upper, total), upper)
        near = np.maximum(column, 5 * floor)
        weight = np.where(known, 1 / (near[:, None] * near[None, :]), 0.0)
        weighted += weight * np.where(known, np.abs(column[:, None] - column[None, :]), 0.0)
        weights += weight
    lower = np.maximum(weighted / np.maximum(weights, 1e-300), floor)
    guess = np.where(np.isfinite(upper), np.sqrt(lower * np.maximum(upper, floor)), np.inf)
    np.fill_diagonal(guess, 0.0)
    return guess


def next_landmark(observations: Observations, landmarks: Indices) -> int | None:
    """The node whose row would bring most nodes a near landmark (facility location on the rough distances).

    None when every node is one.
    """
    left = np.setdiff1d(np.arange(observations.count), landmarks)
    if not len(left):
        return None
    values = signatures(observations, landmarks)
    nearest = np.where(np.isfinite(values), values, np.inf).min(1) if len(landmarks) else np.full(len(values), np.inf)
    nearest[landmarks] = 0.0
    if len(landmarks) < LEAST_LANDMARKS:
        # Too little is known to tell who is near whom: far from the landmarks there are.
        return int(left[np.argmax(np.where(np.isfinite(nearest[left]), nearest[left], -1.0))])
    near = NEAR * observations.floor
    guess = rough_distance(values, observations.floor)
    nearest = np.where(np.isfinite(nearest), nearest, np.nanmax(np.where(np.isfinite(nearest), nearest, np.nan)))
    gain = np.maximum(np.log(nearest + near)[:, None] - np.log(guess + near), 0.0).sum(0)
    return int(left[np.argmax(gain[left])])


class LandmarkBounds:
    """Metrics that behave like a distance: between the triangle bounds that landmarks give."""

    name = "landmark"

    def applies(self, observations: Observations) -> bool:
        """A common landmark for most pairs."""
        return observations.symmetric and observations.count >= 3 and int(observations.measured.sum()) >= 4

    def complete(self, observations: Observations, seed: int) -> Completion:
        """The mean of the bounds where measured pairs lie between them; NaN where nodes have no landmark in common."""
        landmarks = landmarks_of(observations)
        values = signatures(observations, landmarks)
        rows, columns = observations.pairs()
        lower, upper = bounds(*pair_signatures(values, landmarks, rows, columns))
        lower, upper = _within_routers(observations, rows, columns, lower, upper)
        floor = observations.floor
        low, high = np.log(np.maximum(lower, floor)), np.log(np.maximum(upper, floor))
        known = observations.logs()[rows, columns]
        learn = np.isfinite(known) & np.isfinite(high) & (high > low)
        # Where between its bounds a pair lies, as the measured ones do; the upper bound is the better guess at first.
        share = float(np.median((known[learn] - low[learn]) / (high[learn] - low[learn]))) if learn.any() else 0.9
        share = min(max(share, 0.0), 1.0)
        logs = np.full((observations.count, observations.count), np.nan)
        spread = np.full_like(logs, np.nan)
        logs[rows, columns] = low + share * (high - low)
        spread[rows, columns] = 0.05 + 0.1 * np.minimum(high - low, 4.0)
        return Completion(_both(logs), _both(spread))


def _within_routers(
    observations: Observations, rows: Indices, columns: Indices, lower: Floats, upper: Floats
) -> tuple[Floats, Floats]:
    """The bounds, tighter where both ends saw the same router; lower never above upper."""
    shape = (observations.count, observations.count)
    above, below = np.full(shape, np.nan), np.full(shape, np.nan)
    for ends, value, speaks in routers.usable(observations):
        both = np.ix_(ends, ends)
        above[both] = np.fmin(above[both], np.where(speaks, value[:, None] + value[None, :], np.nan))
        below[both] = np.fmax(below[both], np.where(speaks, np.abs(value[:, None] - value[None, :]), np.nan))
    upper = np.fmin(upper, above[rows, columns])
    return np.fmin(np.fmax(lower, below[rows, columns]), upper), upper


def pair_signatures(values: Floats, landmarks: Indices, rows: Indices, columns: Indices) -> tuple[Floats, Floats]:
    """Signatures of both ends of each pair. What a landmark itself measured towards the other is the pair's own value
    and is left out (NaN), as it is for pairs that nobody measured: both look alike to a model."""
    own, other = values[rows].copy(), values[columns].copy()
    for number, landmark in enumerate(landmarks):
        touched = (rows == landmark) | (columns == landmark)
        own[touched, number] = np.nan
        other[touched, number] = np.nan
    return own, other


def _both(upper: Floats) -> Floats:
    return np.where(np.isnan(upper), upper.T, upper)
