"""`two-path-grid`: one bulk flow across an overlay with two disjoint paths, over loss and delay of their wide-area
links and two TCP windows, Bavier et al., Increasing TCP Throughput with an Enhanced Internet Control Plane, section V
(figures 6 and 7).

The window is what the hosts are configured with (net.ipv4.tcp_rmem and tcp_wmem of source and destination). Loss is one
way, as there. The explicit rate is the links' 100 Mb/s; the agent raises the windows of the flows that it gives a rate,
so a small window costs CHART nothing: that is part of what is compared. A program that fixes its own window by
SO_RCVBUF keeps it. With `--installed` every cell is a network of the platform as it is installed, which all controls
share; the program of the flow under `chart` asks for its rate in band.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import agents, installed, noise, traffic
from chart_lab.experiments.framework import (
    Experiment,
    Figure,
    Outcome,
    Report,
    Settings,
    dimensions,
    geometric_mean,
    interleaved,
    temporary_lab,
)
from chart_lab.experiments.installed import Installation
from chart_lab.experiments.kept import Kept
from chart_lab.network import Lab
from chart_lab.topology import Impairment, Topology

LOSSES = (0.0, 0.01, 0.02, 0.05)
DELAYS_MS = (0.0, 10.0, 50.0, 100.0)
WINDOWS_KB = (64, 1024)
DURATION_S = 10.0
CONTROLS = ("cubic", "bbr", "chart")
RATE_MBIT = 100.0
SOURCE, DESTINATION = "source", "destination"
WIDE_AREA = ("ingress-north", "ingress-south")
ATTEMPTS = 3


@dataclass(frozen=True)
class Point:
    """One cell: window of the hosts, loss and delay of both wide-area links."""

    window_kb: int
    loss: float
    delay_ms: float

    @property
    def end(self) -> dict[str, float | str]:
        """Dimensions of its figures."""
        return {"window_kb": self.window_kb, "loss": self.loss, "delay_ms": self.delay_ms}


@dataclass(frozen=True)
class Run:
    """One transfer."""

    point: Point
    control: str
    goodput_bps: float
    rtt_inflation_p99_ms: float | None
    # Why it cannot be judged; None when it can.
    complaint: str | None = None


def points(settings: Settings) -> list[Point]:
    """The grid, window by window."""
    return [
        Point(window, loss, delay)
        for window in WINDOWS_KB
        for loss in settings.loss or LOSSES
        for delay in settings.delay_ms or DELAYS_MS
    ]


def grid_topology(base: Topology, point: Point, rate_mbit: float) -> Topology:
    """All links at one rate; the wide-area ones with the point's delay, and its loss on the way out."""
    links = []
    for link in base.links:
        changes: dict[str, Any] = {"rate_mbit": rate_mbit}
        if link.name in WIDE_AREA:
            changes |= {"delay_ms": point.delay_ms, "loss": point.loss, "reverse": Impairment(loss=0.0)}
        links.append(link.model_copy(update=changes))
    return base.model_copy(update={"links": links})


def set_window(lab: Lab, node: str, window_kb: int) -> None:
    """What the TCP of a host may buffer. The kernel counts the buffers twice the window (tcp_adv_win_scale)."""
    size = 2 * window_kb * 1024
    least = min(size, 4096)
    for name in ("tcp_rmem", "tcp_wmem"):
        lab.exec(node, ["sysctl", "-q", "-w", f"net.ipv4.{name}={least} {size} {size}"])


def run_once(base: Topology, point: Point, control: str, rate_mbit: float, seed: int, duration_s: float) -> Run:
    """One transfer in a lab of its own, so that all controls meet the same losses. Raises LabError when it fails."""
    with temporary_lab(grid_topology(base, point, rate_mbit), seed) as lab:
        for node in (SOURCE, DESTINATION):
            set_window(lab, node, point.window_kb)
        grants: dict[str, list[dict[str, Any]]] = {}
        if control == "chart":
            rate_bps = agents.RATE_SHARE * rate_mbit * 1e6
            own = agents.grant("two-path", lab.address(SOURCE), lab.address(DESTINATION), rate_bps, duration_s + 60)
            grants = {SOURCE: [own], DESTINATION: []}
        with agents.agents(lab, grants):
            return measure(lab, point, control, duration_s)


def measure(lab: Lab, point: Point, control: str, duration_s: float, product: Installation | None = None) -> Run:
    """One transfer in a lab where the flow under `chart` gets its rate: by itself, or in band on a product.

    Raises LabError when it fails or does not end at its rate.
    """
    installed.rest(product)
    lab.reset_ground_truth(WIDE_AREA[0])
    before = noise.cpu_times(lab, product.cpu_s() if product else 0.0)
    account = traffic.Transfer(
        lab,
        SOURCE,
        DESTINATION,
        duration_s=duration_s,
        congestion=None if control == "chart" else control,
        in_band=control == "chart" and product is not None,
    ).finish()
    after = noise.cpu_times(lab, product.cpu_s() if product else 0.0)
    disturbed = noise.judge(before, after, lab.ground_truth(WIDE_AREA[0]))
    if control == "chart" and account.congestion != agents.FLOW_CONTROL:
        raise LabError(f"the flow ended under {account.congestion}: chart-agent did not hold it at its rate")
    inflation_ms = account.rtt_inflation_ms(2 * point.delay_ms)
    return Run(point, control, account.goodput_bps(duration_s), inflation_ms, disturbed.complaint())


# A run under a control with a seed.
Runner = Callable[[str, int], Run]


@contextmanager
def runner(
    base: Topology, point: Point, rate_mbit: float, seed: int, duration_s: float, product: Installation | None
) -> Iterator[Runner]:
    """What makes the runs of a cell: each in a lab of its own, or all of them on one network of a product."""
    if product is None:
        yield lambda control, own: run_once(base, point, control, rate_mbit, own, duration_s)
        return
    with product.network(grid_topology(base, point, rate_mbit), seed) as lab:
        for node in (SOURCE, DESTINATION):
            set_window(lab, node, point.window_kb)
        yield lambda control, _: measure(lab, point, control, duration_s, product)


def run_quietly(runs: Runner, point: Point, control: str, seed: int, *, judge_noise: bool) -> Run:
    """The same, tried again when the machine was noisy. Raises NoisyMachineError when it always is."""
    return noise.undisturbed(
        lambda: runs(control, seed),
        lambda run: run.complaint,
        f"{point} with {control}",
        attempts=ATTEMPTS,
        judge_noise=judge_noise,
    )


def read_run(record: dict[str, Any]) -> Run:
    """A run from what was kept of it."""
    return Run(**{**record, "point": Point(**record["point"])})


def evaluate(runs: Sequence[Run]) -> Iterator[Figure]:
    """Per cell goodput and gain over CUBIC; per window the geometric means of the gain where packets are lost."""
    goodput: dict[tuple[Point, str], float] = {}
    for point, control in dict.fromkeys((run.point, run.control) for run in runs):
        goodput[point, control] = statistics.median(
            run.goodput_bps for run in runs if (run.point, run.control) == (point, control)
        )
    gains: dict[int, list[float]] = {}
    for (point, control), value in goodput.items():
        peer = goodput.get((point, "cubic" if control == "bbr" else "bbr"))
        yield Figure(f"goodput_bps{dimensions(cc=control, **point.end)}", value, "bit/s", None, peer)
        cubic = goodput.get((point, "cubic"))
        if control == "chart" and cubic:
            gain = value / cubic
            over_bbr = value / peer if peer else None
            yield Figure(f"gain{dimensions(**point.end)}", gain, "ratio", ">= 0.98", over_bbr)
            if point.loss > 0:
                gains.setdefault(point.window_kb, []).append(gain)
    for window_kb, own in gains.items():
        yield Figure(f"geometric_mean_gain{dimensions(window_kb=window_kb)}", geometric_mean(own), "ratio", ">= 10")


def table(runs: Sequence[Run]) -> str:
    """Markdown: one line per cell, one column per control."""
    controls = list(dict.fromkeys(run.control for run in runs))
    lines = [
        "# Goodput over two windows, loss and delay",
        "",
        f"| window, KB | loss | delay ms | {' | '.join(f'{control}, Mb/s' for control in controls)} |",
        "| --- " * (3 + len(controls)) + "|",
    ]
    for point in dict.fromkeys(run.point for run in runs):
        cells = []
        for control in controls:
            own = [run.goodput_bps for run in runs if (run.point, run.control) == (point, control)]
            cells.append(f"{statistics.median(own) / 1e6:.2f}" if own else "")
        lines.append(f"| {point.window_kb} | {point.loss:g} | {point.delay_ms:g} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(runs: Sequence[Run], path: Path) -> None:
    """PNG: goodput over delay, one panel per window, one line per loss and control."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(WINDOWS_KB), figsize=(11, 4), sharey=True)
    styles = {"cubic": ":", "bbr": "--", "chart": "-"}
    colours = {loss: f"C{number}" for number, loss in enumerate(sorted({run.point.loss for run in runs}))}
    for axis, window in zip(axes, WINDOWS_KB, strict=True):
        for control, loss in dict.fromkeys((run.control, run.point.loss) for run in runs):
            own = [run for run in runs if (run.control, run.point.loss, run.point.window_kb) == (control, loss, window)]
            own.sort(key=lambda run: run.point.delay_ms)
            axis.plot(
                [run.point.delay_ms for run in own],
                [run.goodput_bps / 1e6 for run in own],
                styles.get(control, "-."),
                color=colours[loss],
                label=f"{control}, loss {loss:g}",
            )
        axis.set_title(f"window {window} KB")
        axis.set_xlabel("one-way delay, ms")
    axes[0].set_ylabel("goodput, Mb/s")
    # Beside the panels: lines run through every corner of them.
    axes[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(settings: Settings, report: Report) -> Outcome:
    """Runs the grid, the controls of a cell interleaved."""
    base = topology.load("two-path")
    duration_s = settings.duration_s or DURATION_S
    rate_mbit = (settings.rate_mbit or (RATE_MBIT,))[0]
    controls = settings.congestion or CONTROLS
    repeat = settings.repeat or 1
    grid = points(settings)
    conditions = {"duration_s": duration_s, "rate_mbit": rate_mbit}
    if settings.installed:
        conditions["installed"] = True
    kept = Kept[Run](settings, conditions, write=asdict, read=read_run)
    runs: list[Run] = []
    with installed.installation(report) if settings.installed else nullcontext() as product:
        for point in grid:
            todo = [(control, settings.seed * 1000 + number) for number, control in interleaved(controls, repeat)]
            # No network comes up for a cell that was finished before.
            fresh = any(kept.get([asdict(point), control, seed]) is None for control, seed in todo)
            report(f"{point}, the network", len(runs) / (len(grid) * len(todo)))
            with runner(base, point, rate_mbit, settings.seed, duration_s, product if fresh else None) as make:
                for control, seed in todo:
                    report(f"{point}, {control}", len(runs) / (len(grid) * len(todo)))
                    quietly = partial(run_quietly, make, point, control, seed, judge_noise=settings.judge_noise)
                    runs.append(kept.measured([asdict(point), control, seed], quietly, duration_s))
    details = [{**asdict(run), "installed": settings.installed} for run in runs]
    return Outcome(list(evaluate(runs)), table(runs), details, lambda path: plot(runs, path))


EXPERIMENT = Experiment(
    "two-path-grid",
    "Goodput over loss, delay and two windows across two paths (Increasing TCP Throughput, figures 6-7).",
    run,
    installed=True,
)
