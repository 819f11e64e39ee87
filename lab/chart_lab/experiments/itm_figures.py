"""Figures, table and plots of the elastic-tunnel experiments; pure but for the plots' files.

Plots have the axes of the figures of Guirguis et al., section 4.1: seconds from 0 to the end of the run, packets per
second from 0 to the capacity; connections below from 0. Overlays are the same curves alone, on no ground and without a
margin: stretched over the axes of the figure of their experiment they lie where they belong.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chart.tunnels import metrics
from chart_lab.experiments.framework import Figure, dimensions
from chart_lab.experiments.itm_run import Run

NEVER = float("inf")


def responses(run: Run) -> list[tuple[float, metrics.StepResponse]]:
    """The figures of every step that had periods: its time of a nominal run, and what happened until the next."""
    return [
        (start_s, metrics.step_response(rates, connections, run.scenario.target_at(start_s)))
        for start_s, rates, connections in run.segments()
        if rates
    ]


def median_settling(found: Sequence[metrics.StepResponse]) -> float | None:
    """Median of the periods until settled, where a run that never settled counts as endless; None: endless."""
    median = statistics.median(NEVER if one.settling_periods is None else one.settling_periods for one in found)
    return None if median == NEVER else median


def step_figures(runs: Sequence[Run]) -> list[Figure]:
    """Settling, overshoot, error and connections per part, controller and step; medians where it was repeated."""
    cells: dict[tuple[str, str, float], list[metrics.StepResponse]] = {}
    for run in runs:
        for start_s, response in responses(run):
            cells.setdefault((run.scenario.part, run.controller, start_s), []).append(response)
    figures = []
    for (part, controller, start_s), found in cells.items():
        cell = dimensions(part=part, controller=controller.replace("=", ":"), step_s=start_s)
        figures += [
            Figure(f"settling_periods{cell}", median_settling(found), "periods"),
            Figure(f"overshoot{cell}", statistics.median(one.overshoot for one in found), "ratio"),
            Figure(f"steady_error{cell}", statistics.median(one.steady_error for one in found), "ratio"),
            Figure(f"connections_peak{cell}", statistics.median(one.connections_peak for one in found), "connections"),
            Figure(f"connection_changes{cell}", statistics.median(one.changes for one in found), "connections"),
        ]
    return figures


def table(title: str, runs: Sequence[Run], paper: Sequence[str] = ()) -> str:
    """Markdown: one line per run and step, and below what the paper reports of the same."""
    lines = [
        f"# {title}",
        "",
        "| part | controller | seed | from s | B* pkt/s | settled | overshoot | steady error | peak m | changes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in runs:
        for start_s, one in responses(run):
            settled = f"{one.settling_periods} periods" if one.settling_periods is not None else "not"
            lines.append(
                f"| {run.scenario.part} | {run.controller} | {run.seed} | {start_s * run.scale:.0f} "
                f"| {run.scenario.target_at(start_s):.0f} | {settled} | {one.overshoot:.1%} | {one.steady_error:.1%} "
                f"| {one.connections_peak} | {one.changes} |"
            )
    if paper:
        lines += ["", "The paper (Guirguis et al., section 4.1) on the same:", "", *(f"- {line}" for line in paper)]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Curve:
    """What an overlay shows: a curve over seconds, and where the axes end."""

    name: str
    at_s: Sequence[float]
    values: Sequence[float]
    until_s: float
    highest: float
    stepwise: bool = False


def mean_of(series: Sequence[Sequence[float]]) -> list[float]:
    """Means by period over as many periods as all have."""
    return [statistics.fmean(values) for values in zip(*series, strict=False)]


def curves(runs: Sequence[Run]) -> list[Curve]:
    """Rate and connections of every run, and the means over runs of a kind, as the paper's figure 7 has them."""
    cells: dict[str, list[Run]] = {}
    for run in runs:
        cells.setdefault(f"{run.scenario.part}-{run.controller.replace('=', '-')}", []).append(run)
    found = []
    for cell, own in cells.items():
        until_s = own[0].scenario.duration_s * own[0].scale
        capacity = own[0].scenario.path.capacity_pps
        highest = 10.0 * math.ceil(max(max(one.connections, default=1) for one in own) / 10)
        series = [(str(run.seed), run.at_s, run.rates_pps, [float(m) for m in run.connections]) for run in own]
        if len(own) > 1:
            _, at_s, rates, connections = zip(*series, strict=True)
            series.append(("mean", mean_of(at_s), mean_of(rates), mean_of(connections)))
        for name, times, of_rate, of_connections in series:
            found.append(Curve(f"{cell}-{name}-rate", times, of_rate, until_s, capacity))
            found.append(Curve(f"{cell}-{name}-connections", times, of_connections, until_s, highest, stepwise=True))
    return found


def plot(runs: Sequence[Run], path: Path) -> None:
    """The PNG of all runs at `path`; beside it one SVG per run, and in the folder `overlays` each curve alone."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    def draw(shown: Sequence[Run], where: Path) -> None:
        figure, axes = pyplot.subplots(2, len(shown), figsize=(4.2 * len(shown), 5), sharex="col", squeeze=False)
        for column, run in enumerate(shown):
            rate, connections = axes[0][column], axes[1][column]
            rate.plot(run.at_s, run.rates_pps, label="tunnel")
            if run.controller != "none":
                rate.step(run.at_s, run.targets_pps, where="pre", color="tab:red", label="target")
            rate.set_title(f"{run.scenario.part}, {run.controller}", fontsize=9)
            rate.set_ylabel("packets per second")
            rate.set_ylim(0, run.scenario.path.capacity_pps)
            connections.step(run.at_s, run.connections, where="post", color="tab:green", label="tunnel's")
            connections.step(run.at_s, run.cross, where="pre", color="tab:gray", linewidth=0.8, label="cross")
            connections.set_ylabel("connections")
            connections.set_ylim(bottom=0)
            connections.set_xlim(0, run.scenario.duration_s * run.scale)
            connections.set_xlabel("seconds")
        axes[0][0].legend(fontsize=8)
        axes[1][0].legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(where, dpi=110)
        pyplot.close(figure)

    def overlay(curve: Curve, where: Path) -> None:
        figure = pyplot.figure(figsize=(5, 3))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        drawstyle = "steps-post" if curve.stepwise else "default"
        axes.plot(curve.at_s, curve.values, color="tab:red", drawstyle=drawstyle)
        axes.set_xlim(0, curve.until_s)
        axes.set_ylim(0, curve.highest)
        title = f"{curve.name}: 0 to {curve.until_s:g} s, 0 to {curve.highest:g}"
        figure.savefig(where, transparent=True, metadata={"Title": title})
        pyplot.close(figure)

    draw(runs, path)
    overlays = path.with_name("overlays")
    overlays.mkdir(exist_ok=True)
    for curve in curves(runs):
        overlay(curve, overlays / f"{curve.name}.svg")
    for run in runs:
        name = f"{run.scenario.part}-{run.controller.replace('=', '-')}-{run.seed}.svg"
        draw([run], path.with_name(name))
