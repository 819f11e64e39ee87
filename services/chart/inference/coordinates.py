"""Network coordinates with heights (Dabek et al., Vivaldi, SIGCOMM 2004), fitted at once instead of probe by probe.

They see all measured pairs together, which signatures do not. A measured pair gets the distance of a fit that did not
know it, so that the feature is as good for pairs that were never measured.
"""

from __future__ import annotations

import numpy as np

from chart.inference.observations import Flags, Floats, Indices

DIMENSIONS = 5
STEPS = 300
STEPS_AGAIN = 150
FOLDS = 4
RATE = 0.08
# Logarithmic error beyond which a pair pulls no harder: detours must not bend the space.
ROBUST = 0.15


def coordinate_features(
    count: int, rows: Indices, columns: Indices, logs: Floats, known: Flags, seed: int
) -> tuple[Floats, Floats]:
    """Log distance with heights and without of every pair; ``logs`` counts only where known."""
    state = _start(count, float(np.exp(np.median(logs[known]))), seed)
    state = _fit(state, rows[known], columns[known], logs[known], STEPS)
    result = _distance(state, rows, columns)
    part = np.random.default_rng(seed).integers(0, FOLDS, len(rows))
    for number in range(FOLDS):
        seen, hidden = known & (part != number), known & (part == number)
        if not seen.any():
            continue
        fitted = _fit(state, rows[seen], columns[seen], logs[seen], STEPS_AGAIN)
        for own, other in zip(result, _distance(fitted, rows[hidden], columns[hidden]), strict=True):
            own[hidden] = other
    return result


# Places and log heights, both in units of the scale, and the scale.
State = tuple[Floats, Floats, float]


def _start(count: int, scale: float, seed: int) -> State:
    random = np.random.default_rng(seed)
    return random.normal(size=(count, DIMENSIONS)) * 0.3, np.full(count, np.log(0.03)), scale


def _distance(state: State, rows: Indices, columns: Indices) -> tuple[Floats, Floats]:
    places, heights, scale = state
    plain = np.sqrt(((places[rows] - places[columns]) ** 2).sum(1) + 1e-8)
    whole = plain + np.exp(heights[rows]) + np.exp(heights[columns])
    return np.log(whole * scale), np.log(plain * scale)


def _fit(state: State, rows: Indices, columns: Indices, logs: Floats, steps: int) -> State:
    """Adam on a robust loss of the log error."""
    places, heights, scale = state
    count = len(heights)
    values = [places, heights]
    first = [np.zeros_like(one) for one in values]
    second = [np.zeros_like(one) for one in values]
    for step in range(1, steps + 1):
        places, heights = values
        away = places[rows] - places[columns]
        plain = np.sqrt((away**2).sum(1) + 1e-6)
        own, other = np.exp(heights[rows]), np.exp(heights[columns])
        whole = plain + own + other
        slope = np.tanh((np.log(whole * scale) - logs) / ROBUST) / whole
        pull = (slope / plain)[:, None] * away
        of_places = np.column_stack(
            [
                np.bincount(rows, pull[:, axis], count) - np.bincount(columns, pull[:, axis], count)
                for axis in range(DIMENSIONS)
            ]
        )
        of_heights = np.bincount(rows, slope * own, count) + np.bincount(columns, slope * other, count)
        rate = RATE * (1 - step / steps) + 0.002
        for index, gradient in enumerate((of_places, of_heights)):
            first[index] = 0.9 * first[index] + 0.1 * gradient
            second[index] = 0.99 * second[index] + 0.01 * gradient**2
            mean, size = first[index] / (1 - 0.9**step), np.sqrt(second[index] / (1 - 0.99**step))
            values[index] = values[index] - rate * mean / (size + 1e-8)
    return values[0], values[1], scale
