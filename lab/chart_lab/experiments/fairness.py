"""`fairness`: flow sets beside each other under the whole control loop, Brassil et al., The CHART System, section 7
(figures 7 and 8).

Figure 7: one flow beside one other on a clean link: legacy beside legacy, CHART beside legacy, CHART beside CHART.
Figure 8: a set of legacy flows beside a set of legacy or CHART flows, at six points of loss and delay. Nobody states a
rate: the allocator measures what legacy flows take and gives the rest to the explicit ones. `fair-share` is the same
with rates that are stated. With `--installed` the flows under `chart` ask for their rates in band, on the platform as
it is installed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from chart_lab.experiments import closed_loop, fair_share, installed, noise
from chart_lab.experiments.closed_loop import Flow, LoopRun
from chart_lab.experiments.fair_share import BOTTLENECK, FLOWS, jain
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions, interleaved
from chart_lab.experiments.kept import Kept
from chart_lab.experiments.traffic import PAYLOAD_SHARE, SEGMENT_BYTES
from chart_lab.topology import Topology, find_link

LEGACY = "cubic"
CLEAN_POINT = (0.0, 10.0)
POINTS = ((0.01, 10.0), (0.01, 50.0), (0.03, 10.0), (0.03, 50.0), (0.05, 10.0), (0.05, 50.0))
PAIRS = ((LEGACY, LEGACY), (LEGACY, "chart"), ("chart", "chart"))
SET_SIZE = 2
DURATION_S = 10.0
REPEAT = 1
CONTROLLER = "nec"
LINK_ID = "west:to-east"
FIRST_PORT = 5001
ATTEMPTS = 3


@dataclass(frozen=True)
class SetRun:
    """Goodput of the flows of two sets that ran beside each other."""

    loss: float
    delay_ms: float
    first: str
    second: str
    first_bps: tuple[float, ...]
    second_bps: tuple[float, ...]
    rate_mbit: float
    # Median RTT of each flow of the first set, and of its segments the part that was sent again: what a flow that
    # losses limit gets is in proportion to 1 / RTT and to 1 / sqrt(losses).
    first_rtt_ms: tuple[float, ...] = ()
    first_lost: tuple[float, ...] = ()

    @property
    def total_share(self) -> float:
        """Of what the link can carry as payload, losses taken off."""
        carried = sum(self.first_bps) + sum(self.second_bps)
        return carried / (self.rate_mbit * 1e6 * (1 - self.loss) * PAYLOAD_SHARE)


def flows_of(first: str, second: str, size: int, duration_s: float) -> list[Flow]:
    """Two sets of equal size, one per pair of nodes."""
    return [
        Flow(source, sink, FIRST_PORT + number, control, 0.0, duration_s)
        for number in range(size)
        for control, (source, sink) in zip((first, second), FLOWS, strict=True)
    ]


# Runs flows beside each other: the network, the flows, the bottleneck, the seed.
Runner = Callable[[Topology, Sequence[Flow], str, int], LoopRun]


@contextmanager
def runner(settings: Settings, report: Report) -> Iterator[Runner]:
    """Broker and allocator alone with grants that the experiment publishes, or the platform as it is installed."""
    if settings.installed:
        with installed.installation(report) as product:
            yield product.run_flows
        return
    with closed_loop.control_plane() as plane:
        plane.state_policy(CONTROLLER)
        yield partial(closed_loop.run_flows, plane)


def run_sets(
    run_flows: Runner, settings: Settings, point: tuple[float, float], kinds: tuple[str, str], size: int, seed: int
) -> SetRun:
    """Both sets at once at one point of loss and delay."""
    loss, delay_ms = point
    base = fair_share.bottleneck_topology(replace(settings, loss=(loss,), delay_ms=(delay_ms,)))
    duration_s = settings.duration_s or DURATION_S
    flows = flows_of(*kinds, size, duration_s)
    found = noise.undisturbed(
        lambda: run_flows(base, flows, LINK_ID, seed),
        lambda one: one.complaint,
        f"{' beside '.join(kinds)} at loss {loss:g}, {delay_ms:g} ms",
        attempts=ATTEMPTS,
        judge_noise=settings.judge_noise,
    )
    goodput = [account.goodput_bps(duration_s, fair_share.WARM_UP_S) for _, account in found.flows]
    rate_mbit = find_link(base, BOTTLENECK)[0].rate_mbit or fair_share.RATE_MBIT
    first = [account for _, account in found.flows][0::2]
    return SetRun(
        loss,
        delay_ms,
        *kinds,
        tuple(goodput[0::2]),
        tuple(goodput[1::2]),
        rate_mbit,
        tuple(account.rtt_inflation_ms(0.0, 0.5, fair_share.WARM_UP_S) or 0.0 for account in first),
        tuple(account.retransmitted * SEGMENT_BYTES / max(1, sum(account.bins)) for account in first),
    )


def read_run(record: dict[str, Any]) -> SetRun:
    """A run from what was kept of it."""
    lists = ("first_bps", "second_bps", "first_rtt_ms", "first_lost")
    return SetRun(**{**record, **{name: tuple(record[name]) for name in lists}})


def evaluate_pairs(runs: Sequence[SetRun]) -> list[Figure]:
    """Figure 7: Jain's index of two CHART flows, the legacy flow's share beside CHART over that beside another."""

    def of(second: str, first: str) -> list[SetRun]:
        return [run for run in runs if (run.first, run.second) == (first, second)]

    both, mixed, legacy = of("chart", "chart"), of("chart", LEGACY), of(LEGACY, LEGACY)
    beside_legacy = statistics.median(value for run in legacy for value in (*run.first_bps, *run.second_bps))
    beside_chart = statistics.median(value for run in mixed for value in run.first_bps)
    index = statistics.median(jain([*run.first_bps, *run.second_bps]) for run in both)
    total = statistics.median(run.total_share for run in both)
    return [
        Figure("jain_chart_chart", index, "ratio", ">= 0.99"),
        Figure("legacy_share_ratio", beside_chart / beside_legacy, "ratio", ">= 0.97", 1.04),
        Figure("total_share", total, "ratio", ">= 0.95", statistics.median(run.total_share for run in legacy)),
        Figure("total_share_chart_legacy", statistics.median(run.total_share for run in mixed), "ratio", None, 0.97),
        Figure("legacy_bps_beside_legacy", beside_legacy, "bit/s"),
        Figure("legacy_bps_beside_chart", beside_chart, "bit/s"),
    ]


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a set's flows about their mean, over that mean."""
    middle = statistics.fmean(values)
    return statistics.pstdev(values) / middle if middle else 0.0


def evaluate_sets(runs: Sequence[SetRun]) -> list[Figure]:
    """Figure 8, per point: the legacy set's goodput beside CHART over that beside legacy, and CHART's over legacy's."""
    figures: list[Figure] = []
    ratios: list[float] = []
    for loss, delay_ms in dict.fromkeys((run.loss, run.delay_ms) for run in runs):
        here = [run for run in runs if (run.loss, run.delay_ms) == (loss, delay_ms)]
        legacy = statistics.median(
            value for run in here if run.second == LEGACY for value in (sum(run.first_bps), sum(run.second_bps))
        )
        beside = statistics.median(sum(run.first_bps) for run in here if run.second == "chart")
        chart = statistics.median(sum(run.second_bps) for run in here if run.second == "chart")
        spread = statistics.median(deviation(run.second_bps) for run in here if run.second == "chart")
        legacy_spread = statistics.median(deviation(run.first_bps) for run in here if run.second == "chart")
        end = dimensions(loss=loss, delay_ms=delay_ms)
        ratios.append(beside / legacy)
        rtt, rtt_legacy = (
            statistics.median(value for run in here if run.second == other for value in run.first_rtt_ms or (0.0,))
            for other in ("chart", LEGACY)
        )
        figures += [
            Figure(f"legacy_share_ratio{end}", beside / legacy, "ratio", ">= 0.97"),
            Figure(f"legacy_rtt_ms{end}", rtt, "ms", None, rtt_legacy),
            Figure(f"chart_over_legacy{end}", chart / beside, "ratio"),
            Figure(f"deviation_in_set{end}", spread, "ratio", None, legacy_spread),
        ]
    if ratios:
        figures.append(Figure("legacy_share_ratio_median_of_points", statistics.median(ratios), "ratio", ">= 0.97"))
    return figures


def table(runs: Sequence[SetRun]) -> str:
    """Markdown: one line per run."""
    lines = [
        "# Flow sets beside each other under link rate control",
        "",
        "| loss | delay ms | first set | Mb/s | RTT ms | sent again | second set | Mb/s | total share |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in runs:
        one, two = (", ".join(f"{value / 1e6:.2f}" for value in own) for own in (run.first_bps, run.second_bps))
        rtt = ", ".join(f"{value:.1f}" for value in run.first_rtt_ms)
        lost = ", ".join(f"{value:.4f}" for value in run.first_lost)
        lines.append(
            f"| {run.loss:g} | {run.delay_ms:g} | {run.first} | {one} | {rtt} | {lost} | {run.second} | {two}"
            f" | {run.total_share:.3f} |"
        )
    return "\n".join(lines) + "\n"


def plot(runs: Sequence[SetRun], path: Path) -> None:
    """PNG: what each set of every run got."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(max(7.0, 0.6 * len(runs)), 4))
    for position, run in enumerate(runs):
        axis.bar(position - 0.2, sum(run.first_bps) / 1e6, 0.4, color="tab:blue")
        axis.bar(position + 0.2, sum(run.second_bps) / 1e6, 0.4, color="tab:orange")
    labels = [f"{run.first}\n{run.second}\n{run.loss:g} {run.delay_ms:g}" for run in runs]
    axis.set_xticks(range(len(runs)), labels, fontsize=6)
    axis.set_ylabel("goodput of a set, Mb/s")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def points(settings: Settings) -> list[tuple[float, float]]:
    """The six points, or every pair of what was asked for."""
    if settings.loss is None and settings.delay_ms is None:
        return list(POINTS)
    losses = settings.loss or sorted({loss for loss, _ in POINTS})
    return [(loss, delay) for loss in losses for delay in settings.delay_ms or sorted({delay for _, delay in POINTS})]


def run(settings: Settings, report: Report) -> Outcome:
    """Figure 7 on the clean link, then figure 8 at every point; pairs interleaved."""
    repeat = settings.repeat or REPEAT
    asked = points(settings)
    steps = repeat * (len(PAIRS) + 2 * len(asked))
    pairs: list[SetRun] = []
    sets: list[SetRun] = []
    names = {f"{first} beside {second}": (first, second) for first, second in PAIRS}
    duration_s = settings.duration_s or DURATION_S
    conditions = {"duration_s": duration_s, "rate_mbit": settings.rate_mbit, "controller": CONTROLLER}
    if settings.installed:
        conditions["installed"] = True
    kept = Kept[SetRun](settings, conditions, write=asdict, read=read_run)
    with runner(settings, report) as run_flows:

        def measured(point: tuple[float, float], kinds: tuple[str, str], size: int, number: int) -> SetRun:
            seed = settings.seed * 1000 + number
            measure = partial(run_sets, run_flows, settings, point, kinds, size, seed)
            return kept.measured([point, kinds, size, seed], measure, duration_s)

        for number, name in interleaved(list(names), repeat):
            report(name, len(pairs) / steps)
            pairs.append(measured(CLEAN_POINT, names[name], 1, number))
        for point in asked:
            for number, other in interleaved((LEGACY, "chart"), repeat):
                report(f"loss {point[0]:g}, {point[1]:g} ms, {other}", (len(pairs) + len(sets)) / steps)
                sets.append(measured(point, (LEGACY, other), SET_SIZE, number))
    runs = [*pairs, *sets]
    figures = [*evaluate_pairs(pairs), *evaluate_sets(sets)]
    details = [{**asdict(run), "installed": settings.installed} for run in runs]
    return Outcome(figures, table(runs), details, lambda path: plot(runs, path))


EXPERIMENT = Experiment(
    "fairness",
    "Legacy and CHART flow sets beside each other under link rate control (The CHART System, figures 7-8).",
    run,
    installed=True,
)
