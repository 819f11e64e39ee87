"""The one interface of inference: `fit` or `update` with observations, `predict`, and `next_pairs`.

The method is chosen per metric by cross-validation on the live data: measured pairs are held out in turns, every
method that applies completes the rest, and the one with the least median error wins. The errors of the same held-out
pairs calibrate the 90 % intervals (see conformal.py). Nothing else of a held-out pair is ever looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from chart.inference import choice
from chart.inference.composition import Composition
from chart.inference.conformal import (
    LEAST_HALF_WIDTH,
    UNKNOWN_HALF_WIDTH,
    Calibration,
    calibrate,
    shift_weights,
    weighted_quantile,
)
from chart.inference.factorisation import Factorisation
from chart.inference.landmarks import LandmarkBounds, landmarks_of
from chart.inference.observations import Completion, Estimates, Flags, Floats, Indices, Observations
from chart.inference.signature import MANY_PAIRS, Signature

FOLDS = 4
# With so few pairs every one counts, to learn from as well, and learning is quick. With fewer still a method that needs
# more than there are would be judged as if it had them.
FEW_PAIRS = range(100, 201)
FOLDS_OF_FEW = 8
# With many pairs one held-out part is enough to calibrate with, and the rest enough to learn from.
MOST_HELD_OUT = 1500
# What pairs of landmarks do not tell: with fewer ordinary pairs than this, landmarks' pairs are held out as well.
LEAST_ORDINARY = 60
# A method is chosen anew after this many updates, and when the held-out error grew by this factor.
CHOOSE_EVERY = 20
WORSE = 1.3
# What a repeated measurement of one pair differs by, relative: the interval of a measured pair.
MEASURED_HALF_WIDTH = 0.02


class Method(Protocol):
    """One way to complete a matrix."""

    name: str

    def applies(self, observations: Observations) -> bool:
        """Whether these observations are enough for it."""
        ...

    def complete(self, observations: Observations, seed: int) -> Completion:
        """Logarithms of all pairs; NaN where it cannot tell."""
        ...


def methods() -> tuple[Method, ...]:
    """All of them, the first wins among equals."""
    return (Composition(), LandmarkBounds(), Signature(), Factorisation())


@dataclass(frozen=True)
class Trial:
    """How a method did on held-out pairs."""

    method: str
    median_error: float
    calibration: Calibration


@dataclass(frozen=True)
class Layer:
    """What one method says of all pairs, and how far it is to be believed."""

    method: str
    completion: Completion
    calibration: Calibration

    def values(self) -> tuple[Floats, Floats, Floats]:
        """Values and the ends of their intervals; NaN where it cannot tell."""
        logs, spread = self.completion.logs, self.completion.spread
        below, above = self.calibration.interval(logs, spread)
        if not self.calibration.held_out:
            below, above = logs - UNKNOWN_HALF_WIDTH, logs + UNKNOWN_HALF_WIDTH
        return np.exp(logs), np.exp(below), np.exp(above)


@dataclass
class Inference:
    """Estimates of one metric, kept up to date."""

    seed: int = 0
    known_methods: Sequence[Method] = field(default_factory=methods)
    trials: list[Trial] = field(default_factory=list)
    _observations: Observations | None = None
    _chosen: Method | None = None
    # What the chosen method says; behind it others, as far as pairs are left of which it cannot tell.
    _layers: list[Layer] = field(default_factory=list)
    _updates: int = 0
    _best_error: float = np.inf

    @property
    def method(self) -> str:
        """Name of the method chosen; "measured" while there is nothing to choose from."""
        return self._chosen.name if self._chosen is not None else "measured"

    def fit(self, observations: Observations) -> None:
        """Choose a method on these observations and complete them."""
        self._observations, self._updates = observations, 0
        candidates = [method for method in self.known_methods if method.applies(observations)]
        self._try(candidates)

    def update(self, observations: Observations) -> None:
        """Newer observations: the chosen method learns anew; another is chosen now and then, or when errors grow."""
        self._updates += 1
        same = self._observations is not None and self._observations.nodes == observations.nodes
        chosen = self._chosen
        if chosen is None or not same or self._updates >= CHOOSE_EVERY or not chosen.applies(observations):
            self.fit(observations)
            return
        best = self._best_error
        self._observations = observations
        self._try([chosen])
        if self.trials and self.trials[0].median_error > WORSE * best:
            self.fit(observations)
        else:
            self._best_error = min(best, self._best_error)

    def _try(self, candidates: list[Method]) -> None:
        observations = self._observations
        assert observations is not None
        self._layers, self.trials = [], []
        if not candidates:
            self._chosen = None
            return
        # Threads inside linear algebra cost more than they bring with matrices of this size, and a busy machine many
        # times as much; the models share out the processors themselves.
        with threadpool_limits(1):
            self._choose(candidates, observations)

    def _choose(self, candidates: list[Method], observations: Observations) -> None:
        folds = held_out(observations, self.seed)
        tried = [(method, *_trial(method, observations, folds, self.seed)) for method in candidates]
        tried.sort(key=lambda one: one[1].median_error)
        self._chosen, self.trials = tried[0][0], [trial for _, trial, _ in tried]
        self._best_error = self.trials[0].median_error
        open_pairs = ~observations.measured & ~np.eye(observations.count, dtype=bool)
        for method, trial, completion in tried:
            # With a single fold the model that was judged is the model; else one that knows every pair.
            whole = completion or method.complete(observations, self.seed)
            self._layers.append(Layer(method.name, whole, trial.calibration))
            open_pairs &= ~np.isfinite(whole.logs)
            if not open_pairs.any():
                break

    def predict(self) -> Estimates:
        """Value and 90 % interval of every pair; measured ones are passed through.

        Raises:
            RuntimeError: nothing was fitted.
        """
        observations = self._observations
        if observations is None:
            msg = "fit first"
            raise RuntimeError(msg)
        shape = observations.values.shape
        values = np.full(shape, np.nan)
        low, high = values.copy(), values.copy()
        by = np.zeros(shape, dtype=np.int64)
        for place, layer in enumerate(self._layers):
            said = layer.values()
            taken = np.isnan(values) & np.isfinite(said[0])
            by[taken] = place
            for matrix, found in zip((values, low, high), said, strict=True):
                matrix[taken] = found[taken]
        measured = observations.measured
        values = np.where(measured, observations.values, values)
        half_width = max(MEASURED_HALF_WIDTH, LEAST_HALF_WIDTH)
        low = np.where(measured, observations.values * (1 - half_width), np.minimum(low, values))
        high = np.where(measured, observations.values * (1 + half_width), np.maximum(high, values))
        for matrix in (values, low, high):
            np.fill_diagonal(matrix, np.nan)
        methods = tuple(layer.method for layer in self._layers) or (self.method,)
        return Estimates(observations.nodes, values, low, high, measured, methods, by)

    def next_pairs(self, count: int, budget: int | None = None, avoid: Flags | None = None) -> list[choice.Choice]:
        """Pairs to measure next, best first; see choice.py. `budget` is how many pairs shall be measured in all,
        `avoid` are those not to ask for now."""
        observations = self._observations
        if observations is None:
            return []
        estimates = self.predict()
        width = np.log(np.maximum(estimates.high, 1e-12) / np.maximum(estimates.low, 1e-12))
        return choice.next_pairs(observations, width, count, budget=budget, seed=self.seed + self._updates, avoid=avoid)


def held_out(observations: Observations, seed: int) -> list[tuple[Indices, Indices]]:
    """Pairs to hide in turns: ordinary ones, like those that will be judged, rather than whole rows of landmarks."""
    rows, columns = observations.pairs()
    known = observations.measured[rows, columns]
    rows, columns = rows[known], columns[known]
    if observations.symmetric:
        landmarks = landmarks_of(observations)
        full = landmarks[observations.measured[:, landmarks].sum(0) >= 0.8 * (observations.count - 1)]
        ordinary = ~np.isin(rows, full) & ~np.isin(columns, full)
        if int(ordinary.sum()) >= LEAST_ORDINARY:
            rows, columns = rows[ordinary], columns[ordinary]
    if not len(rows):
        return []
    order = np.random.default_rng(seed).permutation(len(rows))
    if int(known.sum()) >= MANY_PAIRS:
        order = order[: min(MOST_HELD_OUT, len(order) // 4)]
        return [(rows[order], columns[order])]
    folds = FOLDS_OF_FEW if len(order) in FEW_PAIRS else FOLDS
    return [(rows[part], columns[part]) for part in np.array_split(order, min(folds, len(order)))]


def _trial(
    method: Method, observations: Observations, folds: list[tuple[Indices, Indices]], seed: int
) -> tuple[Trial, Completion | None]:
    """How a method does on the held-out pairs; the completion when it saw all but one part."""
    near = choice.near_pairs(observations)
    kinds: list[Flags] = []
    truths: list[Floats] = []
    said: list[Floats] = []
    spreads: list[Floats] = []
    completion: Completion | None = None
    logs = observations.logs()
    for rows, columns in folds:
        rest = observations.without(rows, columns)
        if not method.applies(rest):
            continue
        completion = method.complete(rest, seed)
        told = np.isfinite(completion.logs[rows, columns])
        kinds.append(near[rows, columns][told])
        truths.append(logs[rows, columns][told])
        said.append(completion.logs[rows, columns][told])
        spreads.append(completion.spread[rows, columns][told])
    if not truths or not sum(len(part) for part in truths):
        return Trial(method.name, np.inf, calibrate(np.zeros(0), np.zeros(0), np.ones(0))), None
    truth, predicted, spread = (np.concatenate(parts) for parts in (truths, said, spreads))
    rows, columns = observations.pairs()
    there = ~observations.measured[rows, columns] & np.isfinite(
        completion.logs[rows, columns] if completion else np.nan
    )
    asked_for = completion.logs[rows, columns][there] if completion else np.zeros(0)
    weights = shift_weights(predicted, asked_for, np.concatenate(kinds), near[rows, columns][there])
    error = weighted_quantile(np.abs(np.expm1(predicted - truth)), weights, 0.5)
    trial = Trial(method.name, error, calibrate(truth, predicted, spread, weights))
    return trial, completion if len(folds) == 1 else None
