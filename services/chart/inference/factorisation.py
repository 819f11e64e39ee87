"""Matrix factorisation by stochastic gradient descent: DMFSGD (Liao et al., IEEE/ACM ToN 2013).

Each node has two short vectors, x_ij = u_i . v_j. Here all nodes live in one process, so a step takes many pairs at
once (Adam on the L1 loss of the normalised values); vectors stay non-negative as in the paper.
"""

from __future__ import annotations

import numpy as np

from chart.inference.observations import Completion, Floats, Observations

RANK = 8
STEPS = 400
RATE = 0.05
REGULARISATION = 2e-3
# Spread of a factorised estimate where nothing tells pairs apart; intervals scale it by what held-out pairs show.
SPREAD = 0.3


class Factorisation:
    """Any metric, from measured pairs alone."""

    name = "factorisation"

    def applies(self, observations: Observations) -> bool:
        """It needs more measured values than it has unknowns of a low rank."""
        return observations.count >= 6 and int(observations.measured.sum()) >= 4 * observations.count

    def complete(self, observations: Observations, seed: int) -> Completion:
        """All pairs that measurements connect."""
        rows, columns = np.nonzero(observations.measured)
        values = np.maximum(observations.values[rows, columns], observations.floor)
        scale = float(np.median(values))
        rank = min(RANK, max(2, int(len(rows) / (2.5 * observations.count))))
        left, right = _descend(rows, columns, values / scale, observations.count, rank, seed)
        product = np.maximum(left @ right.T * scale, observations.floor)
        if observations.symmetric:
            product = (product + product.T) / 2
        degree = observations.measured.sum(1) + 1.0
        spread = SPREAD * np.sqrt(1 / degree[:, None] + 1 / degree[None, :])
        return Completion(np.where(observations.connected(), np.log(product), np.nan), spread)


def _descend(
    rows: np.ndarray, columns: np.ndarray, values: Floats, count: int, rank: int, seed: int
) -> tuple[Floats, Floats]:
    """Both factors, count x rank, by Adam on |u_i . v_j - x_ij| / x_ij^0.5 (errors of small values count too)."""
    random = np.random.default_rng(seed)
    factors = [random.uniform(0.5, 1.0, (count, rank)) / np.sqrt(rank) for _ in range(2)]
    first = [np.zeros_like(factor) for factor in factors]
    second = [np.zeros_like(factor) for factor in factors]
    weights = 1 / np.sqrt(np.maximum(values, 0.05))
    for step in range(1, STEPS + 1):
        left, right = factors
        error = (left[rows] * right[columns]).sum(1) - values
        slope = (weights * np.tanh(error * weights / 0.1))[:, None]
        gradients = (
            _gather(rows, slope * right[columns], count) + REGULARISATION * left,
            _gather(columns, slope * left[rows], count) + REGULARISATION * right,
        )
        rate = RATE * (1 - step / STEPS) + 1e-4
        for index, gradient in enumerate(gradients):
            first[index] = 0.9 * first[index] + 0.1 * gradient
            second[index] = 0.99 * second[index] + 0.01 * gradient**2
            mean = first[index] / (1 - 0.9**step)
            size = np.sqrt(second[index] / (1 - 0.99**step)) + 1e-9
            factors[index] = np.maximum(factors[index] - rate * mean / size, 0.0)
    return factors[0], factors[1]


def _gather(indices: np.ndarray, terms: Floats, count: int) -> Floats:
    return np.column_stack([np.bincount(indices, terms[:, column], count) for column in range(terms.shape[1])])
