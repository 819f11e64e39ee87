"""`fair-share`: flows beside each other, Brassil et al., The CHART System, section 7 (figure 7 and its text).

Two CHART flows on one link, each at half of it (Jain's index); and what a CUBIC flow gets beside a CHART flow at half
of the link, against what it gets beside another CUBIC flow.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chart_lab import topology
from chart_lab.experiments import agents, noise, traffic
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, interleaved, temporary_lab
from chart_lab.topology import Topology

RATE_MBIT = 100.0
DELAY_MS = 10.0
DURATION_S = 30.0
REPEAT = 4
ATTEMPTS = 4
# Shares count once both flows had time to find them.
WARM_UP_S = 2.0
PAIRS = ("cubic beside cubic", "cubic beside chart", "chart beside chart")
BOTTLENECK = "west-east"
FLOWS = (("source1", "sink1"), ("source2", "sink2"))


@dataclass(frozen=True)
class PairRun:
    """Goodput of the two flows that ran beside each other."""

    pair: str
    goodput_bps: tuple[float, float]
    noise: noise.Noise


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has all."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def bottleneck_topology(settings: Settings, name: str = "dumbbell") -> Topology:
    """The dumbbell, or another network with its bottleneck, with the asked rate, delay and loss in the middle."""
    base = topology.load(name)
    changes = {
        "rate_mbit": (settings.rate_mbit or (RATE_MBIT,))[0],
        "delay_ms": (settings.delay_ms or (DELAY_MS,))[0],
        "loss": (settings.loss or (0.0,))[0],
    }
    links = [link.model_copy(update=changes) if link.name == BOTTLENECK else link for link in base.links]
    return base.model_copy(update={"links": links})


def run_pair(base: Topology, pair: str, seed: int, duration_s: float) -> PairRun:
    """Two flows at once, the second named one on the second path."""
    first, second = pair.split(" beside ")
    rate_mbit = next(link.rate_mbit for link in base.links if link.name == BOTTLENECK) or RATE_MBIT
    with temporary_lab(base, seed) as lab:
        grants: dict[str, list[dict[str, Any]]] = {}
        for control, (source, sink) in zip((first, second), FLOWS, strict=True):
            if control == "chart":
                half_bps = agents.RATE_SHARE * rate_mbit * 1e6 / 2
                own = agents.grant(source, lab.address(source), lab.address(sink), half_bps, duration_s + 60)
                grants |= {source: [own], sink: []}
        with agents.agents(lab, grants):
            lab.reset_ground_truth(BOTTLENECK)
            before = noise.cpu_times(lab)
            transfers = [
                traffic.Transfer(
                    lab, source, sink, duration_s=duration_s, congestion=None if control == "chart" else control
                )
                for control, (source, sink) in zip((first, second), FLOWS, strict=True)
            ]
            accounts = [transfer.finish() for transfer in transfers]
            disturbed = noise.judge(before, noise.cpu_times(lab), lab.ground_truth(BOTTLENECK))
    one, two = (account.goodput_bps(duration_s, WARM_UP_S) for account in accounts)
    return PairRun(pair, (one, two), disturbed)


def evaluate(runs: Sequence[PairRun]) -> list[Figure]:
    """Jain's index of two CHART flows, and the legacy flow's share beside CHART over its share beside another."""

    def of(pair: str) -> list[tuple[float, float]]:
        return [run.goodput_bps for run in runs if run.pair == pair]

    def shares(pair: str) -> list[float]:
        return [one / (one + two) for one, two in of(pair)]

    both = of("chart beside chart")
    # Beside its like either flow stands for "a legacy flow": the median over both is one half but for what they waste.
    legacy = statistics.median(value for pair in of("cubic beside cubic") for value in pair)
    beside_chart = statistics.median(one for one, _ in of("cubic beside chart"))
    return [
        Figure("jain_two_chart_flows", statistics.median(jain(pair) for pair in both), "ratio", ">= 0.99"),
        Figure("legacy_share_beside_chart", beside_chart / legacy, "ratio", ">= 0.97", 1.04),
        Figure("cubic_goodput_beside_cubic_bps", legacy, "bit/s"),
        Figure("cubic_goodput_beside_chart_bps", beside_chart, "bit/s"),
        Figure("cubic_fraction_beside_chart", statistics.median(shares("cubic beside chart")), "ratio"),
        Figure("goodput_two_chart_flows_bps", statistics.median(sum(pair) for pair in both), "bit/s"),
    ]


def table(runs: Sequence[PairRun]) -> str:
    """Markdown: one line per run."""
    lines = ["# Flows beside each other", "", "| pair | first Mb/s | second Mb/s |", "| --- | --- | --- |"]
    lines += [f"| {run.pair} | {run.goodput_bps[0] / 1e6:.2f} | {run.goodput_bps[1] / 1e6:.2f} |" for run in runs]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """Runs the three pairs interleaved."""
    base = bottleneck_topology(settings)
    duration_s = settings.duration_s or DURATION_S
    repeat = settings.repeat or REPEAT
    runs: list[PairRun] = []
    for number, pair in interleaved(PAIRS, repeat):
        report(pair, len(runs) / (repeat * len(PAIRS)))
        runs.append(
            noise.undisturbed(
                partial(run_pair, base, pair, settings.seed * 1000 + number, duration_s),
                lambda one: one.noise.complaint(),
                pair,
                attempts=ATTEMPTS,
                judge_noise=settings.judge_noise,
            )
        )
    details = [{"pair": run.pair, "goodput_bps": run.goodput_bps} for run in runs]
    return Outcome(evaluate(runs), table(runs), details, lambda path: plot(runs, path))


def plot(runs: Sequence[PairRun], path: Path) -> None:
    """PNG: both flows of every run as bars."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 3.6))
    for position, result in enumerate(runs):
        axis.bar(position - 0.2, result.goodput_bps[0] / 1e6, 0.4, color="tab:blue")
        axis.bar(position + 0.2, result.goodput_bps[1] / 1e6, 0.4, color="tab:orange")
    axis.set_xticks(range(len(runs)), [run.pair.replace(" beside ", "\n") for run in runs], fontsize=7)
    axis.set_ylabel("goodput, Mb/s")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


EXPERIMENT = Experiment(
    "fair-share",
    "Two CHART flows on one link, and a CUBIC flow beside CHART or CUBIC (The CHART System, figure 7).",
    run,
)
