"""`inference-accuracy`: all pairs from few measured ones (Brassil et al., The CHART System, section 6).

Takes complete matrices, hides them, and lets inference choose what to measure until the budget of pairs is spent. Only
pairs that were never measured are judged. The methods are those of Netvigator, Minerva and DMFSGD (chart.inference).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from chart.inference import choice
from chart.inference.estimator import Inference
from chart.inference.observations import Estimates, Flags, Floats, Observations, observe
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.experiments.inference_data import Throughput, data_folder, read_rtt, read_throughput

FRACTION = 0.13
THROUGHPUT_FRACTION = 0.2
RTT_FILE = "planetlab-rtt-ms.tsv.gz"
THROUGHPUT_FILE = "cloud-throughput-rtt.csv.gz"
RTT_FLOOR_MS = 0.1
THROUGHPUT_FLOOR_BPS = 1e3
CLOSE_MS = 20.0
TOP = 5
REFRESH_NODES = 500
COVERAGE = 0.9


@dataclass(frozen=True)
class Judged:
    """Unseen pairs of one metric: truth and estimate, once each."""

    truth: Floats
    value: Floats
    inside: Flags
    method: str
    measured_pairs: int

    @property
    def errors(self) -> Floats:
        """Relative errors, of the truth; a pair of which nothing is said is wrong by all of it."""
        return np.where(np.isfinite(self.value), np.abs(self.value - self.truth) / self.truth, 1.0)

    @property
    def ranking(self) -> Floats:
        """Values to rank pairs by; of a pair of which nothing is said the middle of all."""
        return np.where(np.isfinite(self.value), self.value, np.nanmedian(self.value))

    @property
    def coverage(self) -> float:
        """Share of the pairs whose interval holds the truth."""
        return float(self.inside.mean())


def measure(hidden: Observations, fraction: float, seed: int) -> Observations:
    """What is known once the fraction of all pairs is measured, pair after pair as inference asks for them."""
    truth = hidden.values
    rows, columns = hidden.pairs()
    there = np.isfinite(truth[rows, columns])
    budget = int(fraction * int(there.sum()))
    known = hidden.without(rows, columns)
    values = known.values
    spent = 0
    width = np.full(truth.shape, np.nan)
    # Landmarks come one after the other; what each row says chooses the next.
    while spent < budget:
        asked = choice.next_pairs(
            known, width, budget - spent, budget=budget, seed=seed, avoid=~np.isfinite(truth), widest=False
        )
        if not asked:
            break
        for pair in asked:
            values[pair.source, pair.destination] = truth[pair.source, pair.destination]
            if hidden.symmetric:
                values[pair.destination, pair.source] = truth[pair.destination, pair.source]
        spent += len(asked)
    return known


def measure_at_random(hidden: Observations, fraction: float, seed: int) -> Observations:
    """What is known once as many pairs, drawn by chance, are measured."""
    rows, columns = hidden.pairs()
    there = np.flatnonzero(np.isfinite(hidden.values[rows, columns]))
    drawn = np.random.default_rng(seed).permutation(there)[: int(fraction * len(there))]
    hide = np.ones(len(rows), dtype=bool)
    hide[drawn] = False
    return hidden.without(rows[hide], columns[hide])


def judge(hidden: Observations, known: Observations, estimates: Estimates) -> Judged:
    """The pairs that were not measured."""
    rows, columns = hidden.pairs()
    truth = hidden.values[rows, columns]
    unseen = np.isfinite(truth) & ~known.measured[rows, columns] & (truth > 0)
    rows, columns, truth = rows[unseen], columns[unseen], truth[unseen]
    inside = (estimates.low[rows, columns] <= truth) & (truth <= estimates.high[rows, columns])
    count = int(known.measured[hidden.pairs()].sum())
    return Judged(truth, estimates.values[rows, columns], inside, estimates.method, count)


def closest(hidden: Observations, known: Observations, estimates: Estimates, *, with_measured: bool = False) -> float:
    """Share of nodes whose closest node is among the five that the estimates put first.

    Candidates are the nodes towards which nothing was measured; with_measured: all nodes, measured values as they are.
    """
    away = ~np.isfinite(hidden.values)
    if not with_measured:
        away = away | known.measured
    truth = np.where(away, np.inf, hidden.values)
    said = np.where(away, np.inf, estimates.values)
    judged = np.isfinite(truth).any(1)
    first = np.argsort(said, axis=1, kind="stable")[:, :TOP]
    best = np.take_along_axis(truth, first, axis=1).min(1)
    return float(np.mean(best[judged] <= truth.min(1)[judged]))


def synthetic(nodes: int, seed: int) -> Observations:
    """Round-trip times of nodes in 40 places, each with an access link of its own; every pair is off by some 5 %."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 100, (40, 3))[random.integers(0, 40, nodes)]
    places = places + random.normal(0, 1, places.shape)
    access = random.exponential(2, nodes)
    distance = np.sqrt(((places[:, None] - places[None]) ** 2).sum(2)) + access[:, None] + access[None] + 0.2
    odd = np.triu(random.lognormal(0, 0.05, distance.shape), 1)
    names = [f"n{number}" for number in range(nodes)]
    return observe(names, distance * (odd + odd.T), symmetric=True, floor=RTT_FLOOR_MS)


def refresh_seconds(seed: int) -> float:
    """Time from new measurements to the estimates of 500 nodes: learn, calibrate, all pairs with intervals."""
    known = measure(synthetic(REFRESH_NODES, seed), FRACTION, seed)
    inference = Inference(seed=seed)
    inference.fit(known)
    begun = time.perf_counter()
    inference.update(known)
    inference.predict()
    return time.perf_counter() - begun


def throughput_observations(data: Throughput) -> Observations:
    """The throughput of every pair with the round-trip time beside it; a name's part before ":" is the group."""
    groups = [name.partition(":")[0] if ":" in name else "" for name in data.nodes]
    return observe(
        data.nodes,
        data.throughput_bps,
        symmetric=False,
        floor=THROUGHPUT_FLOOR_BPS,
        groups=groups,
        aid=data.rtt_ms,
    )


def figures(
    rtt: Judged,
    in_top: float,
    throughput: Judged,
    refresh_s: float,
    in_top_with_measured: float,
    fraction: float = FRACTION,
) -> list[Figure]:
    """The figures of result.json; with fewer pairs measured the goals of round-trip times are lower."""
    few = fraction < FRACTION
    above = throughput.truth > np.median(throughput.truth)
    auc = float(roc_auc_score(above, throughput.ranking)) if len(set(above.tolist())) == 2 else None
    worse = max((rtt.coverage, throughput.coverage), key=lambda coverage: abs(coverage - COVERAGE))
    return [
        Figure("rtt_median_relative_error", float(np.median(rtt.errors)), "ratio", "<= 0.05" if few else "<= 0.045"),
        Figure("rtt_within_20ms", float(np.mean(np.abs(rtt.value - rtt.truth) <= CLOSE_MS)), "ratio", ">= 0.9"),
        Figure("closest_in_top5", in_top, "ratio", ">= 0.90" if few else ">= 0.93"),
        Figure("throughput_median_relative_error", float(np.median(throughput.errors)), "ratio", "<= 0.08"),
        Figure("throughput_auc", auc, "ratio", ">= 0.97"),
        Figure("interval_coverage", worse, "ratio", ">= 0.87"),
        Figure("refresh_s", refresh_s, "s", "<= 5"),
        Figure("rtt_interval_coverage", rtt.coverage, "ratio", ">= 0.87"),
        Figure("throughput_interval_coverage", throughput.coverage, "ratio", ">= 0.87"),
        Figure("closest_in_top5_measured_included", in_top_with_measured, "ratio"),
    ]


def random_figures(rtt: Judged, in_top: float) -> list[Figure]:
    """What as many pairs give when chance and not inference chooses them: for comparison, not judged."""
    return [
        Figure("rtt_median_relative_error_at_random", float(np.median(rtt.errors)), "ratio"),
        Figure("closest_in_top5_at_random", in_top, "ratio"),
    ]


def run(settings: Settings, report: Report) -> Outcome:
    """Both metrics, then the time of a refresh."""
    rtt_file = settings.rtt_file or data_folder() / RTT_FILE
    throughput_file = settings.throughput_file or data_folder() / THROUGHPUT_FILE
    fraction = settings.fraction or FRACTION
    throughput_fraction = settings.throughput_fraction or THROUGHPUT_FRACTION
    report("reading", 0.0)
    names, matrix = read_rtt(rtt_file)
    hidden = observe(names, matrix, symmetric=True, floor=RTT_FLOOR_MS)
    directed = throughput_observations(read_throughput(throughput_file))
    report("round-trip times", 0.05)
    known, estimates, trials = _infer(hidden, fraction, settings.seed)
    rtt = judge(hidden, known, estimates)
    in_top = closest(hidden, known, estimates)
    in_top_with_measured = closest(hidden, known, estimates, with_measured=True)
    report("round-trip times, pairs by chance", 0.35)
    random_rtt, random_top = _by_chance(hidden, fraction, settings.seed)
    report("throughput", 0.5)
    known_directed, estimates_directed, trials_directed = _infer(directed, throughput_fraction, settings.seed)
    throughput = judge(directed, known_directed, estimates_directed)
    if not len(rtt.truth) or not len(throughput.truth):
        raise LabError("no pair is left to judge: lower --fraction or --throughput-fraction")
    for judged, option in ((rtt, "--fraction"), (throughput, "--throughput-fraction")):
        if not np.isfinite(judged.value).any():
            raise LabError(f"{judged.measured_pairs} measured pairs say nothing of the others: raise {option}")
    report(f"refresh of {REFRESH_NODES} nodes", 0.7)
    refresh_s = refresh_seconds(settings.seed)
    result = figures(rtt, in_top, throughput, refresh_s, in_top_with_measured, fraction)
    result += random_figures(random_rtt, random_top)
    details = {
        "rtt": _detail(hidden, rtt, trials),
        "throughput": _detail(directed, throughput, trials_directed),
        "judged": "pairs that were not measured; candidates of closest_in_top5 likewise",
    }
    return Outcome(result, table(result, details), details, lambda path: plot(rtt, throughput, path))


def _by_chance(hidden: Observations, fraction: float, seed: int) -> tuple[Judged, float]:
    known, estimates, _ = _infer(hidden, fraction, seed, measure_at_random)
    return judge(hidden, known, estimates), closest(hidden, known, estimates)


def _infer(
    hidden: Observations, fraction: float, seed: int, choose: Callable[..., Observations] = measure
) -> tuple[Observations, Estimates, dict[str, float]]:
    known = choose(hidden, fraction, seed)
    if int(known.measured.sum()) < 3:
        raise LabError("the fraction leaves nothing to learn from")
    inference = Inference(seed=seed)
    inference.fit(known)
    return known, inference.predict(), {trial.method: trial.median_error for trial in inference.trials}


def _detail(hidden: Observations, judged: Judged, trials: dict[str, float]) -> dict[str, Any]:
    return {
        "nodes": hidden.count,
        "measured_pairs": judged.measured_pairs,
        "judged_pairs": len(judged.truth),
        "method": judged.method,
        "median_error_in_cross_validation": trials,
        "error_quantiles": {str(q): float(np.quantile(judged.errors, q)) for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)},
    }


def table(result: Sequence[Figure], details: dict[str, Any]) -> str:
    """Markdown: the figures, and what they rest on."""
    lines = ["# Inference from few measured pairs", "", "| figure | value | goal |", "| --- | --- | --- |"]
    lines += [
        f"| {figure.name} | {'' if figure.value is None else format(figure.value, '.4g')} | {figure.goal or ''} |"
        for figure in result
    ]
    lines += ["", "| metric | nodes | pairs measured | pairs judged | method |", "| --- | --- | --- | --- | --- |"]
    for metric in ("rtt", "throughput"):
        d = details[metric]
        lines.append(f"| {metric} | {d['nodes']} | {d['measured_pairs']} | {d['judged_pairs']} | {d['method']} |")
    return "\n".join(lines) + "\n"


def plot(rtt: Judged, throughput: Judged, path: Path) -> None:
    """PNG: estimates over truth of both metrics, and the distribution of their relative errors."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.8))
    for axis, judged, title in ((axes[0], rtt, "RTT, ms"), (axes[1], throughput, "throughput, bit/s")):
        axis.loglog(judged.truth, judged.value, ".", markersize=1.5, alpha=0.4)
        limits = [max(float(judged.truth.min()), 1e-2), float(judged.truth.max())]
        axis.loglog(limits, limits, color="black", linewidth=0.8)
        axis.set(title=title, xlabel="truth", ylabel="estimate")
    for judged, label in ((rtt, "RTT"), (throughput, "throughput")):
        errors = np.sort(judged.errors)
        axes[2].semilogx(np.maximum(errors, 1e-4), np.linspace(0, 1, len(errors)), label=label)
    axes[2].set(title="unseen pairs", xlabel="relative error", ylabel="share of pairs")
    axes[2].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


EXPERIMENT = Experiment(
    "inference-accuracy",
    "Estimates for all pairs from few measured ones, judged on pairs that were not measured (section 6).",
    run,
)
