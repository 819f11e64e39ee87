"""`inference-scale`: how long estimates of all pairs of 1,000 nodes take, and the memory for it.

Brassil et al., The CHART System, section 6. Nodes in 40 places with access links of their own; 5 % of the pairs are
measured, a part of them towards landmarks as inference asks for them. A process of its own chooses a method, then takes
newer measurements: learning, calibration and all pairs with their intervals are timed, as the service does them.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from chart.inference.estimator import Inference
from chart.inference.observations import Observations
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.experiments.inference_accuracy import synthetic

NODES = 1000
FRACTION = 0.05
LANDMARKS = 20
REFRESHES = 3
LIMIT_S = 900.0
GOAL = "<= 10"


@dataclass(frozen=True)
class Refreshed:
    """What the process found."""

    took_s: tuple[float, ...]
    fit_s: float
    memory_mib: float
    method: str
    pairs: int
    known_share: float


def measured(hidden: Observations, fraction: float, seed: int) -> Observations:
    """So many of the pairs: all nodes towards some landmarks, the rest at random."""
    random = np.random.default_rng(seed)
    nodes = len(hidden.nodes)
    rows, columns = hidden.pairs()
    known = hidden.without(rows, columns)
    to_landmarks = np.isin(columns, random.choice(nodes, min(LANDMARKS, nodes // 10), replace=False))
    budget = max(0, int(fraction * len(rows)) - int(to_landmarks.sum()))
    chosen = to_landmarks.copy()
    chosen[random.choice(np.flatnonzero(~to_landmarks), budget, replace=False)] = True
    rows, columns = rows[chosen], columns[chosen]
    known.values[rows, columns] = hidden.values[rows, columns]
    known.values[columns, rows] = hidden.values[columns, rows]
    return known


def refresh(nodes: int, fraction: float, seed: int) -> Refreshed:
    """Choose a method once, then take newer measurements several times."""
    hidden = synthetic(nodes, seed)
    inference = Inference(seed=seed)
    begun = time.perf_counter()
    inference.fit(measured(hidden, fraction, seed))
    fit_s = time.perf_counter() - begun
    took = []
    share = 0.0
    for number in range(REFRESHES):
        known = measured(hidden, fraction, seed + 1 + number)
        begun = time.perf_counter()
        inference.update(known)
        estimates = inference.predict()
        took.append(time.perf_counter() - begun)
        share = float(np.isfinite(estimates.values[known.pairs()]).mean())
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Refreshed(tuple(took), fit_s, memory_mib, inference.method, len(hidden.pairs()[0]), share)


def _work(nodes: int, fraction: float, seed: int, answers: Any) -> None:
    answers.put(refresh(nodes, fraction, seed))


def run(settings: Settings, report: Report) -> Outcome:
    """In a process of its own, whose memory is counted."""
    fraction = settings.fraction or FRACTION
    report(f"all pairs of {NODES} nodes", 0.1)
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    process = context.Process(target=_work, args=(NODES, fraction, settings.seed, answers))
    process.start()
    try:
        found: Refreshed = answers.get(timeout=LIMIT_S)
    finally:
        process.join(30)
        process.kill()
    if found.known_share < 1:
        raise LabError(f"only {found.known_share:.1%} of the pairs have an estimate")
    figures = [
        Figure("refresh_s", round(max(found.took_s), 2), "s", GOAL),
        Figure("memory_mib", round(found.memory_mib, 1), "MiB"),
        Figure("fit_s", round(found.fit_s, 2), "s"),
    ]
    table = (
        "| refresh | choosing a method | memory | pairs | method |\n|---|---|---|---|---|\n"
        f"| {', '.join(f'{one:.1f} s' for one in found.took_s)} | {found.fit_s:.1f} s | {found.memory_mib:.0f} MiB"
        f" | {found.pairs} | {found.method} |\n"
    )
    return Outcome(figures, table, vars(found))


EXPERIMENT = Experiment(
    "inference-scale",
    "Estimates of all pairs of 1,000 nodes: refresh and memory (section 6).",
    run,
)
