"""`throughput-grid`: one bulk flow over loss and delay, Brassil et al., The CHART System, section 7, figures 4-6.

Per cell and congestion control: goodput, share of the limit, bytes of the first second, RTT inflation. The limit is
rate x (1 - forward loss) x 1448/1500: what is left after loss and the headers of full segments with timestamps. Loss
and delay hold in both directions of the link.

With `--installed` every cell is a network of the platform as it is installed, and all controls share it: the program of
the flow under `chart` asks in band for all that the path may give; the others' programs ask for nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import agents, grid_report, installed, noise, signal_lab, traffic
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
from chart_lab.experiments.grid_report import Cell, CellResult
from chart_lab.experiments.installed import Installation
from chart_lab.experiments.kept import Kept
from chart_lab.network import Lab
from chart_lab.topology import Topology

RATES_MBIT = (100.0,)
LOSSES = (0.0, 0.01, 0.05, 0.1)
DELAYS_MS = (0.0, 10.0, 50.0, 100.0)
DURATION_S = 60.0
CONTROLS = ("cubic", "bbr", "chart")
DIRECTIONS = ("upload",)
LINK = "alpha-bravo"
ATTEMPTS = 4
KEPT_FILE = "cells.jsonl"


@dataclass(frozen=True)
class Run:
    """One transfer in one cell."""

    goodput_bps: float
    share_of_limit: float
    first_second_bytes: float
    rtt_inflation_p99_ms: float | None
    congestion_at_end: str
    retransmitted: int
    noise: noise.Noise


def cells(settings: Settings) -> list[Cell]:
    """The grid, loss by loss."""
    return [
        Cell(rate, loss, delay, direction)
        for direction in settings.direction or DIRECTIONS
        for rate in settings.rate_mbit or RATES_MBIT
        for loss in settings.loss or LOSSES
        for delay in settings.delay_ms or DELAYS_MS
    ]


def cell_topology(base: Topology, cell: Cell) -> Topology:
    """The two-node topology with the cell's link."""
    link = base.links[0].model_copy(
        update={"rate_mbit": cell.rate_mbit, "delay_ms": cell.delay_ms, "loss": cell.loss, "queue": "default"}
    )
    return base.model_copy(update={"links": [link]})


def rate_source(lab: Lab, cell: Cell, duration_s: float, *, in_band: bool) -> AbstractContextManager[object]:
    """The agents that give alpha's flow the rate of the link: stated by a file, or agreed by signals in the flow."""
    rate_bps = round(agents.RATE_SHARE * cell.rate_mbit * 1e6)
    if not in_band:
        own = agents.grant("grid", lab.address("alpha"), lab.address("bravo"), rate_bps, duration_s + 60)
        return agents.agents(lab, {"alpha": [own], "bravo": []})
    port = {"source_port" if cell.direction == "download" else "destination_port": traffic.PORT}
    asked = {"selector": {"protocol": "tcp", **port}, "available_bps": 10**12, "service": "available"}
    links = {"alpha": [{"interface": "to-bravo", "explicit_bps": rate_bps}]}
    return signal_lab.elements(lab, signal_lab.Signals(lab.topology, asks={"alpha": [asked]}, links=links))


def run_once(base: Topology, cell: Cell, control: str, seed: int, duration_s: float, *, in_band: bool = False) -> Run:
    """One transfer in a lab of its own, so that all controls meet the same losses."""
    with (
        temporary_lab(cell_topology(base, cell), seed) as lab,
        rate_source(lab, cell, duration_s, in_band=in_band) if control == "chart" else nullcontext(),
    ):
        return measure(lab, cell, control, duration_s)


def measure(lab: Lab, cell: Cell, control: str, duration_s: float, product: Installation | None = None) -> Run:
    """One transfer in a lab where the flow under `chart` gets its rate: by itself, or in band on a product.

    Raises LabError when it fails or does not end at its rate.
    """
    installed.rest(product)
    lab.reset_ground_truth(LINK)
    before = noise.cpu_times(lab, product.cpu_s() if product else 0.0)
    transfer = traffic.Transfer(
        lab,
        "alpha",
        "bravo",
        duration_s=duration_s,
        congestion=None if control == "chart" else control,
        direction="download" if cell.direction == "download" else "upload",
        in_band=control == "chart" and product is not None,
    )
    account = transfer.finish()
    after = noise.cpu_times(lab, product.cpu_s() if product else 0.0)
    disturbed = noise.judge(before, after, lab.ground_truth(LINK))
    if control == "chart" and account.congestion != agents.FLOW_CONTROL:
        raise LabError(f"the flow ended under {account.congestion}: chart-agent did not hold it at its rate")
    goodput_bps = account.goodput_bps(duration_s)
    return Run(
        goodput_bps=goodput_bps,
        share_of_limit=goodput_bps / cell.limit_bps,
        first_second_bytes=account.bytes_until(min(1.0, duration_s)),
        rtt_inflation_p99_ms=account.rtt_inflation_ms(2 * cell.delay_ms),
        congestion_at_end=account.congestion,
        retransmitted=account.retransmitted,
        noise=disturbed,
    )


# A run under a control with a seed.
Runner = Callable[[str, int], Run]


@contextmanager
def runner(base: Topology, cell: Cell, settings: Settings, product: Installation | None) -> Iterator[Runner]:
    """What makes the runs of a cell: each in a lab of its own, or all of them on one network of a product."""
    duration_s = settings.duration_s or DURATION_S
    if product is None:
        yield lambda control, seed: run_once(base, cell, control, seed, duration_s, in_band=settings.in_band)
        return
    with product.network(cell_topology(base, cell), settings.seed) as lab:
        yield lambda control, _: measure(lab, cell, control, duration_s, product)


def run_quietly(runs: Runner, cell: Cell, control: str, seed: int, settings: Settings) -> Run:
    """A run that the machine's noise did not spoil; raises NoisyMachineError after several spoilt ones."""
    return noise.undisturbed(
        lambda: runs(control, seed),
        lambda run: run.noise.complaint(),
        f"{cell} with {control}",
        attempts=ATTEMPTS,
        judge_noise=settings.judge_noise,
    )


# The runs of one cell by control. A cell is kept whole: its controls were measured in the same minutes.
CellRuns = dict[str, list[Run]]


def kept_cells(settings: Settings, duration_s: float, repeat: int) -> Kept[CellRuns]:
    """The finished cells in the folder. Raises LabError when the file there is not ours."""
    conditions: dict[str, Any] = {"duration_s": duration_s, "repeat": repeat, "seed": settings.seed}
    if settings.in_band:
        conditions["in_band"] = True
    if settings.installed:
        conditions["installed"] = True

    def write(runs: CellRuns) -> dict[str, Any]:
        return {control: [asdict(run) for run in own] for control, own in runs.items()}

    def read(record: dict[str, Any]) -> CellRuns:
        return {
            control: [Run(**{**run, "noise": noise.Noise(**run["noise"])}) for run in own]
            for control, own in record.items()
        }

    return Kept(settings, conditions, write=write, read=read, file=KEPT_FILE)


def merge(runs: list[Run]) -> CellResult:
    """Medians over the repeats of one cell, and the range of the goodput."""
    inflation = [run.rtt_inflation_p99_ms for run in runs if run.rtt_inflation_p99_ms is not None]
    return CellResult(
        goodput_bps=statistics.median(run.goodput_bps for run in runs),
        goodput_range_bps=(min(run.goodput_bps for run in runs), max(run.goodput_bps for run in runs)),
        share_of_limit=statistics.median(run.share_of_limit for run in runs),
        first_second_bytes=statistics.median(run.first_second_bytes for run in runs),
        rtt_inflation_p99_ms=statistics.median(inflation) if inflation else None,
    )


def summary(results: dict[tuple[Cell, str], CellResult]) -> Iterator[Figure]:
    """The figures over the whole grid; the unqualified ones speak of chart."""
    chart = {cell: result for (cell, control), result in results.items() if control == "chart"}
    if not chart:
        return
    shares = [result.share_of_limit for result in chart.values()]
    yield Figure("min_share_of_limit", min(shares), "ratio", ">= 0.92")
    yield Figure("max_share_of_limit", max(shares), "ratio", "<= 1.005")
    lossy_gains = [
        chart[cell].goodput_bps / result.goodput_bps
        for (cell, control), result in results.items()
        if control == "cubic" and cell.loss > 0 and result.goodput_bps > 0
    ]
    if lossy_gains:
        yield Figure("geometric_mean_gain_over_cubic", geometric_mean(lossy_gains), "ratio", ">= 20")
    over_bbr = [
        chart[cell].goodput_bps / result.goodput_bps
        for (cell, control), result in results.items()
        if control == "bbr" and result.goodput_bps > 0
    ]
    if over_bbr:
        yield Figure("min_gain_over_bbr", min(over_bbr), "ratio", ">= 0.98")
    inflation = [r.rtt_inflation_p99_ms for r in chart.values() if r.rtt_inflation_p99_ms is not None]
    others = [r.rtt_inflation_p99_ms for (_, c), r in results.items() if c == "bbr" and r.rtt_inflation_p99_ms]
    if inflation:
        yield Figure("p99_rtt_inflation_ms", max(inflation), "ms", "<= 5", max(others, default=None))


def per_cell(results: dict[tuple[Cell, str], CellResult]) -> Iterator[Figure]:
    """The figures of every cell; the peer of chart is bbr, that of the others the other one."""
    for (cell, control), result in results.items():
        values: dict[str, float | str] = {"cc": control}
        values |= {"rate_mbit": cell.rate_mbit, "loss": cell.loss, "delay_ms": cell.delay_ms}
        if cell.direction == "download":
            values["direction"] = "download"
        suffix = dimensions(**values)
        peer = results.get((cell, "cubic" if control == "bbr" else "bbr"))
        of_chart = control == "chart"
        goodput_goal = f">= {0.92 * cell.limit_bps:.0f}" if of_chart else None
        first_goal = None
        if of_chart and cell.loss == 0:
            first_goal = f">= {max(0.0, 0.9 * cell.rate_mbit * 1e6 / 8 * (1 - 2.5 * 2 * cell.delay_ms / 1e3)):.0f}"
        for name, value, unit, goal in (
            ("goodput_bps", result.goodput_bps, "bit/s", goodput_goal),
            ("share_of_limit", result.share_of_limit, "ratio", ">= 0.92" if of_chart else None),
            ("first_second_bytes", result.first_second_bytes, "byte", first_goal),
            ("rtt_inflation_p99_ms", result.rtt_inflation_p99_ms, "ms", "<= 5" if of_chart else None),
        ):
            yield Figure(name + suffix, value, unit, goal, None if peer is None else getattr(peer, name))


def run(settings: Settings, report: Report) -> Outcome:
    """Runs the grid; report gets what is being done and which share of all is done."""
    base = topology.load("two-node")
    duration_s = settings.duration_s or DURATION_S
    controls = settings.congestion or CONTROLS
    repeat = settings.repeat or 1
    grid = cells(settings)
    runs: dict[tuple[Cell, str], list[Run]] = {}
    kept = kept_cells(settings, duration_s, repeat)
    with installed.installation(report) if settings.installed else nullcontext() as product:
        for place, cell in enumerate(grid):
            of_cell = kept.get(asdict(cell))
            if of_cell is None or not of_cell.keys() >= set(controls):
                of_cell = {control: [] for control in controls}
                report(f"{cell}, the network comes up", place / len(grid))
                with runner(base, cell, settings, product) as make:
                    for done, (number, control) in enumerate(interleaved(controls, repeat)):
                        report(f"{cell}, {control}", (place + done / (len(controls) * repeat)) / len(grid))
                        seed = settings.seed * 1000 + number
                        of_cell[control].append(run_quietly(make, cell, control, seed, settings))
                kept.add(asdict(cell), of_cell)
            runs |= {(cell, control): of_cell[control] for control in controls}
    results = {key: merge(own) for key, own in runs.items()}
    return Outcome(
        figures=[*summary(results), *per_cell(results)],
        table=grid_report.table(results, duration_s, repeat),
        details=[
            {
                **asdict(cell),
                "congestion": control,
                "installed": settings.installed,
                "runs": [asdict(run) for run in own],
            }
            for (cell, control), own in runs.items()
        ],
        plot=lambda path: grid_report.plot(results, path),
    )


EXPERIMENT = Experiment(
    "throughput-grid",
    "Goodput of one flow over loss and delay under each congestion control (The CHART System, figures 4-6).",
    run,
    installed=True,
)
