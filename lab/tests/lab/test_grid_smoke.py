"""Four cells of `throughput-grid` for 15 s with the goals of signalling.md ("What good means"), and BBR beside one."""

from __future__ import annotations

import os

import pytest

from chart_lab import topology
from chart_lab.experiments import throughput_grid
from chart_lab.experiments.grid_report import Cell
from chart_lab.experiments.throughput_grid import Run
from chart_lab.programs import build_directory
from support.figures import Figures

pytestmark = pytest.mark.lab

DURATION_S = 15.0
SEED = 3
# Connecting over 200 ms already costs 2 % of 15 s: the far corner is for the full grid.
CELLS = [
    Cell(100, 0, 10, "upload"),
    Cell(100, 0.01, 50, "upload"),
    Cell(100, 0.05, 50, "upload"),
    Cell(100, 0.1, 10, "upload"),
]
# Of `make test`; `make verify-all` runs all.
QUICK = (CELLS[0], CELLS[2])


@pytest.fixture(scope="module")
def results() -> dict[tuple[Cell, str], Run]:
    """Every run of this module, so that BBR is compared with the CHART run of the same minute."""
    return {}


def run(results: dict[tuple[Cell, str], Run], cell: Cell, control: str) -> Run:
    """The run of a cell under a control, made when first asked for."""
    if (cell, control) not in results:
        base = topology.load("two-node")
        results[cell, control] = throughput_grid.run_once(base, cell, control, SEED, DURATION_S)
    return results[cell, control]


@pytest.fixture(autouse=True)
def _built() -> None:
    assert os.access(build_directory() / "dataplane" / "chart-agent", os.X_OK), "chart-agent is not built: make setup"


@pytest.mark.parametrize(
    "cell", [cell if cell in QUICK else pytest.param(cell, marks=pytest.mark.slow) for cell in CELLS], ids=str
)
def test_chart_keeps_its_rate_through_loss_and_delay(
    results: dict[tuple[Cell, str], Run], cell: Cell, figures: Figures
) -> None:
    found = run(results, cell, "chart")
    figures.disturbed(found.noise.complaint())
    figures.within("goodput", found.share_of_limit, (0.92, 1.005), "of the limit", sound=(0.46, 1.1))
    if cell.loss == 0:
        possible = cell.rate_mbit * 1e6 / 8 * (1 - 2.5 * 2 * cell.delay_ms / 1e3)
        figures.at_least("first second", found.first_second_bytes / possible, 0.9, "of what is possible", sound=0.3)
    assert found.rtt_inflation_p99_ms is not None
    figures.at_most("RTT inflation, p99", found.rtt_inflation_p99_ms, 5, "ms", sound=None)


@pytest.mark.timed
def test_chart_is_ahead_of_bbr_on_a_lossy_long_link(results: dict[tuple[Cell, str], Run], figures: Figures) -> None:
    chart, bbr = run(results, CELLS[2], "chart"), run(results, CELLS[2], "bbr")
    figures.disturbed(chart.noise.complaint() or bbr.noise.complaint())
    ahead = chart.goodput_bps / bbr.goodput_bps
    figures.at_least("goodput beside that of BBR", ahead, 1.0, "ratio", sound=None, peer="bbr")
