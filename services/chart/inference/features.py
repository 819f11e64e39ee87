"""Features of a pair for a model: its two signatures compared, and statistics of pairs of like nodes.

Minerva (Sharma et al., INFOCOM 2008): a node's partial measurements are its signature, a model learns what two
signatures say about the pair. No feature names a node, so that a model does not learn the nodes themselves, and no
feature of a pair uses the pair's own value.
"""

from __future__ import annotations

import numpy as np

from chart.inference import landmarks as marks
from chart.inference.milestones import milestone_features
from chart.inference.observations import Flags, Floats, Indices, Observations

# Unlikeness at which a like node's word counts 1/e, from twins at one site to the same region.
SCALES = (0.006, 0.015, 0.04, 0.1, 0.25)
# A residual beyond these says that a pair is odd; how odd must not pull on its neighbours.
RESIDUAL_RANGE = (-1.5, 1.0)
QUANTILES = (0.25, 0.5, 0.75, 0.9)
# Stands for "unknown", beyond all real values.
UNKNOWN = 1e4


def signature_features(own: Floats, other: Floats, floor: float) -> tuple[Floats, Floats]:
    """(features, log of the least sum over landmarks) of pairs from both ends' signatures, pairs x landmarks.

    Pairs without a common landmark have NaN as the least sum.
    """
    total, difference = own + other, np.abs(own - other)
    known = np.isfinite(total)
    count = np.maximum(known.sum(1), 1)
    sums = np.partition(np.where(known, total, np.inf), min(3, total.shape[1] - 1), axis=1)[:, :4]
    sums = np.sort(sums, axis=1)
    ascending = np.sort(np.where(known, difference, np.inf), axis=1)
    ratio = np.abs(np.log(np.maximum(own, 3 * floor)) - np.log(np.maximum(other, 3 * floor)))
    ratios = np.sort(np.where(known, ratio, np.inf), axis=1)
    columns: list[Floats] = [np.log(np.maximum(sums[:, index], floor)) for index in range(sums.shape[1])]
    columns += [_at(ascending, count, 1 - step / 20) for step in range(4)]
    columns += [np.log(_at(ascending, count, share) + floor) for share in QUANTILES]
    columns += [_at(ratios, count, share) for share in QUANTILES]
    product = np.where(known, 1 / (np.maximum(own, 5 * floor) * np.maximum(other, 5 * floor)), 0.0)
    # The inner product of inverse distances ranks the closest best (Netvigator).
    sizes = [np.where(known, 1 / np.maximum(side, 5 * floor) ** 2, 0.0).sum(1) for side in (own, other)]
    columns.append(product.sum(1) / np.sqrt(np.maximum(sizes[0] * sizes[1], 1e-300)))
    plain = np.where(known, difference, 0.0)
    for power in (0.5, 1.0, 1.5):
        weight = product**power
        mass = np.maximum(weight.sum(1), 1e-300)
        columns.append(np.log((weight * plain).sum(1) / mass + floor))
        columns.append(np.log((weight * np.where(known, total, 0.0)).sum(1) / mass + floor))
    mean = plain.sum(1) / count
    columns += [mean, np.log(np.sqrt((plain**2).sum(1) / count - mean**2 + floor**2))]
    # An access line adds the same to every landmark: what is left without it.
    signed = np.where(known, own - other, np.nan)
    offset = np.where(known.any(1), np.nan_to_num(signed).sum(1) / count, 0.0)
    around = np.sqrt(np.where(known, (np.nan_to_num(signed) - offset[:, None]) ** 2, 0.0).sum(1) / count)
    columns += [np.abs(offset), np.log(around + floor)]
    for combine in (np.minimum, np.maximum):
        columns.append(combine(*(np.where(known, side, np.inf).min(1) for side in (own, other))))
        columns.append(combine(*(np.where(known, side, 0.0).sum(1) / count for side in (own, other))))
    upper = np.where(known.any(1), np.log(np.maximum(sums[:, 0], floor)), np.nan)
    return np.column_stack(columns), upper


def _at(ascending: Floats, count: Indices, share: float) -> Floats:
    """Quantile of each row whose first `count` entries are known."""
    index = np.clip((share * (count - 1)).astype(np.intp), 0, ascending.shape[1] - 1)
    return np.take_along_axis(ascending, index[:, None], axis=1)[:, 0]


def like_pair_features(distance: Floats, known: Flags, residuals: Floats, rows: Indices, columns: Indices) -> Floats:
    """What measured pairs of nodes like the two ends say: per scale mean residual, weight, spread.

    A kernel average over all measured pairs (k, l), weighted by how like k is to i and l to j; the pair's own value is
    taken out. Twins of either end that measured the other bring nearly the pair's own value.
    """
    mask = known.astype(np.float64)
    values = np.clip(np.where(known, residuals, 0.0), *RESIDUAL_RANGE)
    found = []
    for scale in SCALES:
        kernel = np.exp(-distance / scale)
        kernel[kernel < 1e-4] = 0.0
        np.fill_diagonal(kernel, 1.0)
        own = 1.0 + kernel[rows, columns] ** 2
        sums = [
            (kernel @ matrix @ kernel)[rows, columns] - own * matrix[rows, columns]
            for matrix in (mask, values, values**2)
        ]
        weight = np.maximum(sums[0], 0.0)
        mean = sums[1] / (weight + 0.05)
        found += [mean, np.log(weight + 1e-3), np.sqrt(np.maximum(sums[2] / (weight + 0.05) - mean**2, 0.0))]
    # Whether an end is above its bounds in general, as nodes behind slow access lines are.
    degree, total = mask.sum(1), values.sum(1)
    pair_mask, pair_value = mask[rows, columns], values[rows, columns]
    ends = [(total[end] - pair_value) / (degree[end] - pair_mask + 1.0) for end in (rows, columns)]
    return np.column_stack([*found, np.minimum(*ends), np.maximum(*ends)])


def symmetric_features(observations: Observations) -> tuple[Floats, Floats]:
    """(features, base) of every pair of a symmetric metric; base is the log of the upper triangle bound."""
    landmarks = marks.landmarks_of(observations)
    values = marks.signatures(observations, landmarks)
    rows, columns = observations.pairs()
    own, other = marks.pair_signatures(values, landmarks, rows, columns)
    about, base = signature_features(own, other, observations.floor)
    logs = observations.logs()
    known = np.isfinite(logs[rows, columns])
    # Without a common landmark: the median of what was measured.
    base = np.where(np.isfinite(base), base, float(np.median(logs[rows, columns][known])))
    residuals = np.zeros_like(logs)
    residuals[rows, columns] = np.where(known, logs[rows, columns] - base, 0.0)
    residuals += residuals.T
    distance = marks.node_distance(values, observations.floor)
    likes = like_pair_features(distance, observations.measured, residuals, rows, columns)
    common = milestone_features(observations, landmarks, rows, columns, base)
    features = np.column_stack([about, distance[rows, columns], likes, *common])
    return np.where(np.isfinite(features), np.clip(features, -UNKNOWN, UNKNOWN), UNKNOWN), base
