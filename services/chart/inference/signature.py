"""Learned signatures (Minerva, INFOCOM 2008): trees learn how far a pair is from what its signatures suggest.

Two kinds of trees vote, each good where the other is not: extremely randomised trees (Geurts et al., Machine Learning
63, 2006), whose disagreement also tells how sure they are, and gradient boosting for the median.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from chart.inference import coordinates, directed, features
from chart.inference.landmarks import landmarks_of
from chart.inference.observations import Completion, Flags, Floats, Observations

# Fewer measured pairs than this teach nothing that landmarks and topology do not say.
LEAST_PAIRS = 40
# From this many measured pairs on, fewer trees do (and more would not be ready in time).
MANY_PAIRS = 8000
# Landmarks' rows are many and never judged like the rest: each counts half.
LANDMARK_WEIGHT = 0.5
# Near pairs are few, and who is nearest is asked most often: the nearest of the measured ones count more.
NEAR_SHARE = 0.3
NEAR_WEIGHT = 1.5
LEAST_SPREAD = 0.01


@dataclass(frozen=True)
class Trees:
    """Sizes of the two models."""

    trees: int
    leaf: int
    rounds: int
    leaves: int
    rate: float
    boosted_leaf: int
    boosted_share: float = 0.5
    share: float = 0.5


LARGE = Trees(trees=100, leaf=2, rounds=300, leaves=20, rate=0.05, boosted_leaf=12)
QUICK = Trees(trees=16, leaf=5, rounds=60, leaves=24, rate=0.18, boosted_leaf=20, share=0.3)
SMALL = Trees(trees=200, leaf=2, rounds=120, leaves=8, rate=0.07, boosted_leaf=6, boosted_share=0.3)


class Signature:
    """Any metric with enough measured pairs; directed ones best with a metric that is known for all pairs beside."""

    name = "signature"

    def applies(self, observations: Observations) -> bool:
        """Enough to learn from."""
        return int(np.isfinite(observations.values[observations.pairs()]).sum()) >= LEAST_PAIRS

    def complete(self, observations: Observations, seed: int) -> Completion:
        """All pairs."""
        rows, columns = observations.pairs()
        known = observations.measured[rows, columns]
        truth = observations.logs()[rows, columns]
        if observations.symmetric:
            about, base = features.symmetric_features(observations)
            landmarks = landmarks_of(observations)
            touched = np.isin(rows, landmarks) | np.isin(columns, landmarks)
            weights: Floats | None = None
            if int(known.sum()) >= MANY_PAIRS:
                # Every other pair of the landmarks' rows instead of half the weight: boosting finds medians of
                # weighted pairs many times as slowly.
                sizes, lesson = QUICK, known & ~(touched & ((rows + columns) % 2 == 0))
            else:
                sizes, lesson = LARGE, known
                weights = np.where(touched, LANDMARK_WEIGHT, 1.0) * _near_weights(truth, known & ~touched)
                placed = coordinates.coordinate_features(observations.count, rows, columns, truth, known, seed)
                about = np.column_stack([about, *placed, placed[0] - base])
            residual, spread = vote(about, truth - base, lesson, weights, sizes, seed)
        else:
            about, base = directed.directed_features(observations)
            sizes = SMALL if int(known.sum()) < MANY_PAIRS else QUICK
            residual, spread = vote(about, truth - base, known, None, sizes, seed)
            kriged = directed.krige(observations, truth - base, seed)
            if kriged is not None:
                spread = np.sqrt(spread**2 + (residual - kriged) ** 2 / 4)
                residual = (2 * residual + kriged) / 3
        logs = np.full((observations.count, observations.count), np.nan)
        spreads = np.full_like(logs, np.nan)
        logs[rows, columns] = base + residual
        spreads[rows, columns] = spread
        if observations.symmetric:
            logs[columns, rows], spreads[columns, rows] = logs[rows, columns], spreads[rows, columns]
        return Completion(np.where(observations.connected(), logs, np.nan), spreads)


def _near_weights(truth: Floats, ordinary: Flags) -> Floats:
    """What each pair counts by its own value; `ordinary` are measured pairs of nodes that are no landmarks."""
    if not ordinary.any():
        return np.ones(len(truth))
    return np.where(truth < np.quantile(truth[ordinary], NEAR_SHARE), NEAR_WEIGHT, 1.0)


def vote(
    about: Floats, target: Floats, known: np.ndarray, weights: Floats | None, sizes: Trees, seed: int
) -> tuple[Floats, Floats]:
    """(target, spread) of every row from those known: mean of both models, and how far their parts disagree."""
    about = np.ascontiguousarray(about, dtype=np.float32)
    lesson = (about[known], target[known], weights[known] if weights is not None else None)

    def random_trees() -> tuple[Floats, Floats]:
        model = ExtraTreesRegressor(
            sizes.trees, min_samples_leaf=sizes.leaf, max_features=sizes.share, n_jobs=1, random_state=seed
        ).fit(lesson[0], lesson[1], sample_weight=lesson[2])
        total, squares = np.zeros(len(about)), np.zeros(len(about))
        for tree in model.estimators_:
            said = tree.tree_.predict(about)[:, 0]
            total += said
            squares += said**2
        mean = total / sizes.trees
        return mean, np.maximum(squares / sizes.trees - mean**2, 0.0)

    def boosted() -> Floats:
        # Threads inside boosting would wait for each other at every split; the limit holds for this thread alone.
        with threadpool_limits(1, user_api="openmp"):
            return boosting()

    def boosting() -> Floats:
        model = HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=sizes.rounds,
            learning_rate=sizes.rate,
            max_leaf_nodes=sizes.leaves,
            min_samples_leaf=sizes.boosted_leaf,
            max_features=sizes.boosted_share,
            l2_regularization=1.0,
            early_stopping=False,
            random_state=seed,
        ).fit(lesson[0], lesson[1], sample_weight=lesson[2])
        return np.asarray(model.predict(about), dtype=np.float64)

    with ThreadPoolExecutor(1) as pool:  # a core for each model
        second_result = pool.submit(boosted)
        first, variance = random_trees()
        second = second_result.result()
    spread = np.sqrt(variance + (second - first) ** 2 / 4 + LEAST_SPREAD**2)
    return (first + second) / 2, spread
