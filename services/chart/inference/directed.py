"""Features and kriging for directed metrics such as throughput, whose ends and groups matter more than distance.

Throughput is limited by sender, receiver and provider, and falls with the round-trip time (Minerva's bandwidth
classes; ranking hosts by capacity, Sharma et al., Globecom 2010): what like senders reach like receivers with.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from chart.inference.observations import Flags, Floats, Indices, Observations

# Kernel widths of unlikeness in the other metric's rows, in logarithms.
WIDTHS = (0.15, 0.4)
# A kernel average leans towards nothing by this many measured pairs.
PRIOR_WEIGHT = 0.5
NEIGHBOURHOOD = 0.3
UNKNOWN = -9.0
MOST_KRIGED = 1200
MOST_TUNED = 450
# Knees of the line through the other metric, as quantiles of it.
KNEES = (0.3, 0.65)


def directed_features(observations: Observations) -> tuple[Floats, Floats]:
    """(features, base) of every pair; base is the log value that the other metric alone suggests."""
    rows, columns = observations.pairs()
    known = observations.measured
    logs = observations.logs()
    aid = _aid(observations)
    base = _line(aid[rows, columns], logs[rows, columns])
    residuals = np.zeros_like(logs)
    residuals[rows, columns] = np.where(known[rows, columns], logs[rows, columns] - base, 0.0)
    found: list[Floats] = [aid[rows, columns], base]
    for first, second in _kernels(observations, aid):
        found += _average(first, second, known.astype(np.float64), residuals, rows, columns)
    found.append(np.where(known[columns, rows], residuals[columns, rows], UNKNOWN))
    found += _near_in_aid(observations, aid, residuals, rows, columns)
    groups = observations.groups
    found += [
        groups[rows].astype(float),
        groups[columns].astype(float),
        (groups[rows] == groups[columns]).astype(float),
    ]
    features = np.column_stack(found)
    return np.where(np.isfinite(features), features, UNKNOWN), base


def _aid(observations: Observations) -> Floats:
    """Logarithm of the other metric for all pairs; its median where unknown, 0 without one."""
    if observations.aid is None:
        return np.zeros_like(observations.values)
    aid = np.log(np.maximum(observations.aid, 1e-9))
    known = np.isfinite(aid) & ~np.eye(observations.count, dtype=bool)
    return np.where(known, aid, np.median(aid[known]) if known.any() else 0.0)


def _line(aid: Floats, truth: Floats) -> Floats:
    """Robust line with two knees through (other metric, measured value)."""
    knees = np.quantile(aid, KNEES)
    terms = np.column_stack([np.ones_like(aid), aid, *(np.maximum(aid - knee, 0.0) for knee in knees)])
    known = np.isfinite(truth)
    if np.ptp(aid) == 0 or int(known.sum()) < 3 * terms.shape[1]:
        return np.full(len(aid), float(np.median(truth[known])))
    weights: Floats = np.ones(int(known.sum()))
    coefficients: Floats = np.zeros(terms.shape[1])
    for _ in range(10):
        solution = np.linalg.lstsq(terms[known] * weights[:, None], truth[known] * weights, rcond=None)[0]
        coefficients = np.asarray(solution, dtype=np.float64)
        residual = np.abs(truth[known] - terms[known] @ coefficients)
        weights = (1 / np.sqrt(np.maximum(residual, 0.05))).astype(np.float64)
    line = terms @ coefficients
    low, high = np.quantile(truth[known], (0.0, 1.0))
    return np.clip(line, low, high)


def _unlikeness(aid: Floats) -> tuple[Floats, Floats]:
    """How unlike two senders, and two receivers, are by their rows and columns of the other metric."""
    count = len(aid)
    sides = []
    for matrix in (aid, aid.T):
        distance = np.zeros((count, count))
        for column in matrix.T:
            distance += np.abs(column[:, None] - column[None, :])
        sides.append(distance / count)
    return sides[0], sides[1]


def _kernels(observations: Observations, aid: Floats) -> list[tuple[Floats, Floats]]:
    """How much sender k and receiver l say about sender i and receiver j, in several views."""
    count = observations.count
    self_only, anyone = np.eye(count), np.ones((count, count))
    grouped = (observations.groups[:, None] == observations.groups[None, :]).astype(np.float64)
    views = [(self_only, anyone), (anyone, self_only)]
    several = len(np.unique(observations.groups)) > 1
    if several:
        views += [(grouped, grouped), (self_only, grouped), (grouped, self_only), (grouped, anyone), (anyone, grouped)]
    senders, receivers = _unlikeness(aid)
    for width in WIDTHS:
        first, second = np.exp(-senders / width), np.exp(-receivers / width)
        views += [(first, second), (self_only, second), (first, self_only)]
        if several:
            views += [
                (first * grouped, second * grouped),
                (self_only, second * grouped),
                (first * grouped, self_only),
            ]
    return views


def _average(
    first: Floats, second: Floats, known: Floats, residuals: Floats, rows: Indices, columns: Indices
) -> list[Floats]:
    """Kernel average of the residuals and its weight, the pair's own value left out."""
    own = first[rows, rows] * second[columns, columns]
    weight = (first @ known @ second.T)[rows, columns] - own * known[rows, columns]
    total = (first @ residuals @ second.T)[rows, columns] - own * residuals[rows, columns]
    weight = np.maximum(weight, 0.0)
    return [total / (weight + PRIOR_WEIGHT), np.log(weight + 0.1)]


def _near_in_aid(
    observations: Observations, aid: Floats, residuals: Floats, rows: Indices, columns: Indices
) -> list[Floats]:
    """Averages over measured pairs with a like value of the other metric: same sender, same receiver, same groups."""
    known = np.flatnonzero(observations.measured[rows, columns])
    if len(known) > MOST_KRIGED:
        known = known[:: len(known) // MOST_KRIGED + 1]
    values = aid[rows, columns]
    groups = observations.groups
    results: list[Floats] = [np.zeros(len(rows)) for _ in range(3)]
    told = residuals[rows[known], columns[known]]
    # In pieces: all pairs times the known ones do not fit.
    step = max(1, 4_000_000 // max(len(known), 1))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        near = np.exp(-np.abs(values[part, None] - values[None, known]) / NEIGHBOURHOOD)
        near[np.arange(len(rows))[part, None] == known[None, :]] = 0.0
        same = (
            rows[part, None] == rows[None, known],
            columns[part, None] == columns[None, known],
            (groups[rows[part]][:, None] == groups[rows[known]][None, :])
            & (groups[columns[part]][:, None] == groups[columns[known]][None, :]),
        )
        for result, alike in zip(results, same, strict=True):
            weight = near * alike
            result[part] = (weight @ told) / (weight.sum(1) + NEIGHBOURHOOD)
    return results


class _Covariance:
    """Parts of the covariance of residuals: sender, receiver, groups and the other metric, alone and together."""

    # Logarithms of the variances of the parts (shares of the whole), the widths, and the noise.
    START = np.log([0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.2, 0.2, 0.05, 0.1, 0.1, 0.5, 0.5, 0.05])

    def __init__(self, observations: Observations, aid: Floats) -> None:
        self._rows, self._columns = observations.pairs()
        self._aid = aid[self._rows, self._columns]
        self._groups = observations.groups
        self._senders, self._receivers = _unlikeness(aid)

    def parts(self, some: Indices, others: Indices) -> tuple[np.ndarray, ...]:
        """What the covariance of pairs `some` and `others` is made of."""
        first, second = self._rows[some], self._columns[some]
        third, fourth = self._rows[others], self._columns[others]
        groups = self._groups
        return (
            first[:, None] == third[None, :],
            second[:, None] == fourth[None, :],
            self._aid[some][:, None] - self._aid[others][None, :],
            groups[first][:, None] == groups[third][None, :],
            groups[second][:, None] == groups[fourth][None, :],
            self._senders[np.ix_(first, third)] + self._receivers[np.ix_(second, fourth)],
            (first[:, None] == fourth[None, :]) & (second[:, None] == third[None, :]),
        )

    @staticmethod
    def of(parts: tuple[np.ndarray, ...], logs: Floats) -> Floats:
        """The covariance, as a share of the variance."""
        sender, receiver, aid, from_group, to_group, unlike, reverse = parts
        scale = np.exp(np.clip(logs, -12.0, 6.0))
        near = np.exp(-0.5 * (aid / scale[11]) ** 2)
        like = np.exp(-unlike / scale[12])
        covariance: Floats = (
            scale[0] * sender
            + scale[1] * receiver
            + scale[2] * near
            + scale[3] * from_group * to_group * (0.2 + near)
            + scale[4] * sender * to_group * near
            + scale[5] * receiver * from_group * near
            + scale[6] * like
            + scale[7] * from_group * to_group * like
            + scale[8] * reverse
            + scale[9] * from_group * near
            + scale[10] * to_group * near
        )
        return covariance


def krige(observations: Observations, residuals: Floats, seed: int) -> Floats | None:
    """Residuals of all pairs by Gaussian process regression (kriging); NaN residuals are unknown.

    None when there are too many nodes for it to be ready in time.
    """
    known = np.flatnonzero(np.isfinite(residuals))
    if len(residuals) > 20_000:
        return None
    if len(known) > MOST_KRIGED:
        known = np.random.default_rng(seed).choice(known, MOST_KRIGED, replace=False)
    covariance = _Covariance(observations, _aid(observations))
    middle = float(np.median(residuals[known]))
    values = residuals[known] - middle
    low, high = np.percentile(values, (2, 98))
    values = np.clip(values, low - 0.1, high + 0.1)
    size = float(values.std()) + 1e-9
    values = values / size
    parts = covariance.parts(known, known)
    identity = np.eye(len(known))

    def unlikely(logs: Floats) -> float:
        """Negative log marginal likelihood, and how far from the start."""
        try:
            factor = np.linalg.cholesky(covariance.of(parts, logs) + np.exp(logs[13]) * identity)
        except np.linalg.LinAlgError:
            return 1e6
        solved = np.linalg.solve(factor, values)
        away = float(((logs - _Covariance.START) ** 2).sum())
        return float(0.5 * solved @ solved + np.log(np.diag(factor)).sum() + 0.05 * away)

    logs = _Covariance.START
    if len(known) <= MOST_TUNED:
        logs = minimize(unlikely, logs, method="L-BFGS-B", options={"maxiter": 15}).x
    weights = np.linalg.solve(covariance.of(parts, logs) + np.exp(logs[13]) * identity, values)
    estimate = np.empty(len(residuals))
    step = max(1, 2_000_000 // len(known))
    for start in range(0, len(residuals), step):
        some = np.arange(start, min(start + step, len(residuals)))
        estimate[some] = covariance.of(covariance.parts(some, known), logs) @ weights
    return middle + size * estimate


def balanced(observations: Observations, measured: Flags, count: int, seed: int) -> list[tuple[int, int]]:
    """The next pairs of a directed metric: ends and pairs of groups that were measured least, chance among equals."""
    random = np.random.default_rng(seed)
    known = measured.copy()
    groups = observations.groups
    together = np.zeros((int(groups.max(initial=0)) + 1,) * 2)
    np.add.at(together, (groups[np.nonzero(known)[0]], groups[np.nonzero(known)[1]]), 1)
    sizes = np.bincount(groups, minlength=len(together)).astype(np.float64)
    room = np.maximum(np.outer(sizes, sizes) - np.diag(sizes), 1.0)
    out, into = known.sum(1).astype(np.float64), known.sum(0).astype(np.float64)
    chosen: list[tuple[int, int]] = []
    open_pairs = ~known & ~np.eye(observations.count, dtype=bool)
    chance = random.random(known.shape)
    for _ in range(min(count, int(open_pairs.sum()))):
        crowd = (together / room)[np.ix_(groups, groups)] * observations.count
        cost = np.where(open_pairs, out[:, None] + into[None, :] + crowd + chance, np.inf)
        row, column = divmod(int(np.argmin(cost)), observations.count)
        chosen.append((row, column))
        open_pairs[row, column] = False
        out[row] += 1
        into[column] += 1
        together[groups[row], groups[column]] += 1
    return chosen
