"""Prediction intervals with a stated coverage: split conformal prediction (Lei et al., JASA 2018, section 2.2).

Pairs that the model did not see are predicted; what share of them falls outside decides how wide the intervals are.
Lower and upper end are calibrated apart because errors of round-trip times are skewed. Which pairs were measured is no
chance (near ones were chosen more often), so each held-out pair counts as often as pairs like it are still unmeasured:
weighted conformal prediction under covariate shift (Tibshirani et al., NeurIPS 2019, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chart.inference.observations import Floats

COVERAGE = 0.9
# Below this many held-out pairs the quantiles mean nothing and the widest residual, doubled, stands in.
ENOUGH = 2 * int(2 / (1 - COVERAGE))
# A handful that happens to be right proves little: the interval reaches at least FEW / handful spreads.
FEW = 10.0
# Bins of predictions in which pairs are alike, pairs that make one, and how much one pair may count.
BINS = 10
LEAST_IN_BIN = 30
MOST_WEIGHT = 8.0
# Half the width of an interval, in logarithms, of which nothing at all is known: a factor of 3 either way.
UNKNOWN_HALF_WIDTH = 1.1
# No interval of an estimate is narrower than this, relative.
LEAST_HALF_WIDTH = 1e-3


@dataclass(frozen=True)
class Calibration:
    """How many spreads the interval reaches below and above the estimate, in logarithms."""

    below: float
    above: float
    held_out: int

    def interval(self, logs: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Lower and upper end, as logarithms."""
        low = logs - np.maximum(self.below * spread, LEAST_HALF_WIDTH)
        high = logs + np.maximum(self.above * spread, LEAST_HALF_WIDTH)
        return low, high


def shift_weights(held_out: Floats, asked_for: Floats) -> Floats:
    """How often each held-out prediction counts, so that together they are like the predictions asked for; mean 1.

    The ratio of densities by quantile bins of the predictions asked for, bounded so that no pair speaks for too many.
    """
    if len(held_out) < ENOUGH or len(asked_for) < ENOUGH:
        return np.ones(len(held_out))
    bins = max(2, min(BINS, len(held_out) // LEAST_IN_BIN))
    edges = np.quantile(asked_for, np.linspace(0, 1, bins + 1)[1:-1])
    where = np.searchsorted(edges, held_out)
    there = np.bincount(where, minlength=bins) / len(held_out)
    wanted = np.bincount(np.searchsorted(edges, asked_for), minlength=bins) / len(asked_for)
    weights = np.clip(wanted / np.maximum(there, 1e-9), 1 / MOST_WEIGHT, MOST_WEIGHT)[where]
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The least value up to which at least this share of the weight lies."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, share - 1e-12)), len(values) - 1)])


def calibrate(truth: Floats, predicted: Floats, spread: Floats, weights: Floats | None = None) -> Calibration:
    """From held-out pairs, all in logarithms. Each end leaves out half of what the interval may miss."""
    scores = (truth - predicted) / spread
    count = len(scores)
    if count == 0:
        return Calibration(np.nan, np.nan, 0)
    if count < ENOUGH:
        widest = max(2 * float(np.abs(scores).max()), FEW / count)
        return Calibration(widest, widest, count)
    miss = (1 - COVERAGE) / 2
    # The finite-sample rank: the new pair is one more among the held-out ones.
    rank = min(1.0, np.ceil((count + 1) * (1 - miss)) / count)
    counted = np.ones(count) if weights is None else weights
    above = weighted_quantile(scores, counted, rank)
    below = weighted_quantile(-scores, counted, rank)
    return Calibration(below, above, count)
