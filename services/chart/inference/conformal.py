"""Prediction intervals with a stated coverage: split conformal prediction (Lei et al., JASA 2018, section 2.2).

Pairs that the model did not see are predicted; what share of them falls outside decides how wide the intervals are.
Lower and upper end are calibrated apart because errors of round-trip times are skewed, where enough pairs are held out
to tell their tails apart. Which pairs were measured is no chance (near ones were chosen more often), so each held-out
pair counts as often as pairs like it are still unmeasured: weighted conformal prediction under covariate shift
(Tibshirani et al., NeurIPS 2019, section 2). How large errors are against what the models say of them goes with the
value itself; that trend is taken out first, so that intervals hold for near and for far pairs (locally weighted
conformal prediction, Lei et al., section 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chart.inference.observations import Flags, Floats

COVERAGE = 0.9
# Below this many held-out pairs the quantiles mean nothing and the widest residual, doubled, stands in.
ENOUGH = 2 * int(2 / (1 - COVERAGE))
# A handful that happens to be right proves little: the interval reaches at least FEW / handful spreads.
FEW = 10.0
# Bins of predictions in which pairs are alike, pairs that make one, and how much one pair may count.
BINS = 10
LEAST_IN_BIN = 30
MOST_WEIGHT = 8.0
# Held-out pairs of one kind that can speak for all of it.
LEAST_OF_KIND = 60
# With fewer held-out pairs neither a trend nor the skew is told from chance: twelve choices of 186 pairs of one matrix
# covered 0.83 to 0.98 with them and 0.84 to 0.96 without.
ENOUGH_FOR_TREND = 600
# Errors below this share of the median do not pull on the trend.
LEAST_SCORE = 0.1
# So many pairs say as much as one that shares no node with others.
ALIKE = 2.0
# Half the width of an interval, in logarithms, of which nothing at all is known: a factor of 3 either way.
UNKNOWN_HALF_WIDTH = 1.1
# No interval of an estimate is narrower than this, relative.
LEAST_HALF_WIDTH = 1e-3


@dataclass(frozen=True)
class Trend:
    """How the logarithm of a score's size goes with the prediction and the spread; flat beyond what was held out."""

    coefficients: Floats
    low: Floats
    high: Floats

    def factor(self, logs: Floats, spread: Floats) -> Floats:
        """What spreads are multiplied with."""
        kept = [
            np.clip(about, low, high)
            for about, low, high in zip((logs, np.log(spread)), self.low, self.high, strict=True)
        ]
        return np.asarray(np.exp(_terms(kept[0], kept[1], self.low, self.high) @ self.coefficients), dtype=np.float64)


def _terms(logs: Floats, log_spread: Floats, low: Floats, high: Floats) -> Floats:
    """A constant, a parabola of the prediction and a line of the spread, over their ranges."""
    size = np.maximum(high - low, 1e-9)
    place = 2 * (logs - low[0]) / size[0] - 1
    return np.stack([np.ones_like(place), place, place**2, 2 * (log_spread - low[1]) / size[1] - 1], axis=-1)


def trend_of(scores: Floats, predicted: Floats, spread: Floats) -> Trend | None:
    """The trend of held-out scores; None when there are too few."""
    if len(scores) < ENOUGH_FOR_TREND:
        return None
    about = np.stack([predicted, np.log(spread)])
    low, high = np.quantile(about, 0.01, axis=1), np.quantile(about, 0.99, axis=1)
    size = np.abs(scores)
    sizes = np.log(np.maximum(size, LEAST_SCORE * np.median(size) + 1e-12))
    kept = np.clip(about, low[:, None], high[:, None])
    terms = _terms(kept[0], kept[1], low, high)
    # A little ridge keeps a term that says nothing (a spread that is always the same) out.
    penalty = 0.01 * len(scores) * np.diag([0.0, 1.0, 1.0, 1.0])
    middle = float(sizes.mean())
    solved = np.linalg.solve(terms.T @ terms + penalty, terms.T @ (sizes - middle))
    return Trend(np.asarray(solved, dtype=np.float64), low, high)


@dataclass(frozen=True)
class Calibration:
    """How many spreads the interval reaches below and above the estimate, in logarithms."""

    below: float
    above: float
    held_out: int
    trend: Trend | None = None

    def interval(self, logs: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Lower and upper end, as logarithms."""
        if self.trend is not None:
            spread = spread * self.trend.factor(logs, spread)
        low = logs - np.maximum(self.below * spread, LEAST_HALF_WIDTH)
        high = logs + np.maximum(self.above * spread, LEAST_HALF_WIDTH)
        return low, high


def shift_weights(
    held_out: Floats, asked_for: Floats, held_out_kinds: Flags | None = None, asked_for_kinds: Flags | None = None
) -> Floats:
    """How often each held-out prediction counts, so that together they are like the predictions asked for; mean 1.

    The ratio of densities by quantile bins of the predictions asked for, bounded so that no pair weighs too much.
    Pairs of two kinds, of which one was measured more often than the other, are told apart where enough are held out.
    """
    if len(held_out) < ENOUGH or len(asked_for) < ENOUGH:
        return np.ones(len(held_out))
    weights = np.ones(len(held_out))
    for own, asked in _kinds(held_out_kinds, asked_for_kinds, len(held_out), len(asked_for)):
        weights[own] = _ratios(held_out[own], asked_for[asked])
        weights[own] *= asked.mean() / own.mean()
    weights = np.clip(weights, 1 / MOST_WEIGHT, MOST_WEIGHT)
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def _kinds(held_out: Flags | None, asked_for: Flags | None, count: int, asked_count: int) -> list[tuple[Flags, Flags]]:
    """Which held-out pairs and which asked for go together; all with all when one kind is too few to stand alone."""
    if held_out is not None and asked_for is not None:
        parts = [(held_out, asked_for), (~held_out, ~asked_for)]
        if all(own.sum() >= LEAST_OF_KIND for own, _ in parts):
            return parts
    return [(np.ones(count, dtype=bool), np.ones(asked_count, dtype=bool))]


def _ratios(held_out: Floats, asked_for: Floats) -> Floats:
    """Densities of predictions asked for over those held out; mean about 1."""
    if len(asked_for) < ENOUGH:
        return np.ones(len(held_out))
    bins = max(2, min(BINS, len(held_out) // LEAST_IN_BIN))
    edges = np.quantile(asked_for, np.linspace(0, 1, bins + 1)[1:-1])
    where = np.searchsorted(edges, held_out)
    there = np.bincount(where, minlength=bins) / len(held_out)
    wanted = np.bincount(np.searchsorted(edges, asked_for), minlength=bins) / len(asked_for)
    ratios = np.clip(wanted / np.maximum(there, 1e-9), 1 / MOST_WEIGHT, MOST_WEIGHT)[where]
    return np.asarray(ratios, dtype=np.float64)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The least value up to which at least this share of the weight lies."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, share - 1e-12)), len(values) - 1)])


def calibrate(truth: Floats, predicted: Floats, spread: Floats, weights: Floats | None = None) -> Calibration:
    """From held-out pairs, all in logarithms. With enough of them each end leaves out half of what the interval may
    miss."""
    scores = (truth - predicted) / spread
    count = len(scores)
    if count == 0:
        return Calibration(np.nan, np.nan, 0)
    if count < ENOUGH:
        widest = max(2 * float(np.abs(scores).max()), FEW / count)
        return Calibration(widest, widest, count)
    trend = trend_of(scores, predicted, spread)
    if trend is not None:
        scores = scores / trend.factor(predicted, spread)
    counted = np.ones(count) if weights is None else weights
    # The finite-sample rank: the new pair is one more among the held-out ones, of which those that weigh much stand for
    # many (effective size, Kish, Survey Sampling, 1965) and those that share a node are alike.
    independent = float(counted.sum() ** 2 / (counted**2).sum()) / ALIKE

    def reach(values: Floats, share: float) -> float:
        return weighted_quantile(values, counted, min(1.0, share * (1 + 1 / independent)))

    if trend is None:
        reaches = reach(np.abs(scores), COVERAGE)
        return Calibration(reaches, reaches, count)
    share = (1 + COVERAGE) / 2
    return Calibration(reach(-scores, share), reach(scores, share), count, trend)
