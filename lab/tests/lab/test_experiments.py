"""What experiments make of their measurements; nothing is measured here."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from chart_lab import experiments
from chart_lab.experiments import fair_share, framework, grid_report, itm_api, noise, throughput_grid, traffic
from chart_lab.experiments.framework import Figure, Outcome, Settings
from chart_lab.experiments.grid_report import Cell, CellResult

MS = 1_000_000


def result(mbit: float, cell: Cell, inflation_ms: float = 1.0) -> CellResult:
    bps = mbit * 1e6
    return CellResult(bps, (bps, bps), bps / cell.limit_bps, bps / 8, inflation_ms)


def test_goodput_counts_from_the_syn_and_bins_count_evenly() -> None:
    account = traffic.account(
        {
            "syn_ns": 100 * MS,
            "established_ns": 120 * MS,
            "congestion": "bbr",
            "at_ns": [130 * MS, 330 * MS, 400 * MS],
            "rtt_us": [90_000, 21_000, 25_000],
            "retransmitted": [0, 1, 3],
        },
        {"syn_ns": 0, "established_ns": 125 * MS, "bin_ns": 10 * MS, "bins": [0, 1000, 2000, 0, 4000]},
    )
    # Bin 1 is 135-145 ms, that is 35-45 ms after the SYN.
    assert account.bytes_until(0.030) == 0
    assert account.bytes_until(0.040) == pytest.approx(500)
    assert account.bytes_until(10) == 7000
    assert account.goodput_bps(1.0) == pytest.approx(56_000)
    assert account.rtt_inflation_ms(20.0) == pytest.approx(5.0)
    assert account.retransmitted == 3


def test_runs_are_interleaved_there_and_back() -> None:
    order = [choice for _, choice in framework.interleaved(("a", "b"), 3)]
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_figures_of_the_grid() -> None:
    clean, lossy = Cell(100, 0, 10, "upload"), Cell(100, 0.05, 50, "download")
    results = {
        (clean, "cubic"): result(94, clean, 100),
        (clean, "bbr"): result(95, clean, 40),
        (clean, "chart"): result(94.5, clean, 1.5),
        (lossy, "cubic"): result(0.5, lossy, 5),
        (lossy, "bbr"): result(70, lossy, 80),
        (lossy, "chart"): result(88, lossy, 2.5),
    }
    figures = {figure.name: figure for figure in throughput_grid.summary(results)}
    assert figures["min_share_of_limit"].value == pytest.approx(88e6 / (1e8 * 0.95 * 1448 / 1500))
    assert figures["geometric_mean_gain_over_cubic"].value == pytest.approx(176)
    assert figures["min_gain_over_bbr"].value == pytest.approx(94.5 / 95)
    assert figures["p99_rtt_inflation_ms"].value == 2.5
    assert all(figure.met() for figure in figures.values())
    cells = {figure.name: figure for figure in throughput_grid.per_cell(results)}
    of_chart = cells["goodput_bps/cc=chart/rate_mbit=100/loss=0/delay_ms=10"]
    assert (of_chart.value, of_chart.peer) == (94.5e6, 95e6)
    assert cells["first_second_bytes/cc=bbr/rate_mbit=100/loss=0.05/delay_ms=50/direction=download"].value == 70e6 / 8
    assert "| 100 | 0.05 | 50 | download | 91.71 |" in grid_report.table(results, 60, 1)


def test_cells_follow_the_lists_that_were_asked_for() -> None:
    settings = Settings(Path("out"), rate_mbit=(60, 10), loss=(0.03,), delay_ms=(35, 70), direction=("download",))
    cells = throughput_grid.cells(settings)
    assert [(cell.rate_mbit, cell.delay_ms) for cell in cells] == [(60, 35), (60, 70), (10, 35), (10, 70)]
    assert len(throughput_grid.cells(Settings(Path("out")))) == 16


def test_finished_cells_are_kept_for_the_same_conditions(tmp_path: Path) -> None:
    run = throughput_grid.Run(9e7, 0.97, 1e7, 1.5, "trinity", 3, noise.Noise(0.1, 0.0, 5.0, 0))
    cell = Cell(100.0, 0.05, 50.0, "upload")
    settings = Settings(tmp_path / "grid", resume=True)
    of_cell = {"chart": [run], "bbr": [run, run]}
    throughput_grid.kept_cells(settings, 60.0, 1).add(asdict(cell), of_cell)
    assert throughput_grid.kept_cells(settings, 60.0, 1).get(asdict(cell)) == of_cell
    for other in (
        throughput_grid.kept_cells(settings, 5.0, 1),
        throughput_grid.kept_cells(settings, 60.0, 2),
        throughput_grid.kept_cells(replace(settings, in_band=True), 60.0, 1),
        throughput_grid.kept_cells(replace(settings, seed=2), 60.0, 1),
    ):
        assert other.get(asdict(cell)) is None


def test_fairness_figures() -> None:
    quiet = noise.Noise(0, 0, 10, 0)
    runs = [
        fair_share.PairRun("cubic beside cubic", (50e6, 44e6), quiet),
        fair_share.PairRun("cubic beside chart", (47e6, 47e6), quiet),
        fair_share.PairRun("chart beside chart", (47e6, 47e6), quiet),
    ]
    figures = {figure.name: figure.value for figure in fair_share.evaluate(runs)}
    assert figures["jain_two_chart_flows"] == pytest.approx(1)
    assert figures["legacy_share_beside_chart"] == pytest.approx(1)
    assert fair_share.jain([1, 0, 0, 0]) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("found", "fragment"),
    [
        (noise.Noise(0.1, 0.01, 100, 0), None),
        (noise.Noise(0.9, 0, 100, 0), "other processes"),
        (noise.Noise(0, 0.5, 100, 0), "hypervisor"),
        (noise.Noise(0, 0, 9000, 0), "late"),
        (noise.Noise(0, 0, 1, 30), "never reached"),
    ],
)
def test_noise_is_named(found: noise.Noise, fragment: str | None) -> None:
    complaint = found.complaint()
    assert (complaint is None) if fragment is None else (complaint is not None and fragment in complaint)


def test_files_of_a_result(tmp_path: Path) -> None:
    cell = Cell(100, 0, 10, "upload")
    results = {(cell, "cubic"): result(94, cell), (cell, "chart"): result(94, cell)}
    outcome = Outcome([Figure("x", 1.5, "ratio", ">= 2")], "table", {}, lambda path: grid_report.plot(results, path))
    framework.write(outcome, "chart lab run x", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    assert written == {
        "command": "chart lab run x",
        "figures": [{"name": "x", "value": 1.5, "unit": "ratio", "goal": ">= 2", "peer": None}],
    }
    assert (tmp_path / "out" / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert outcome.figures[0].met() is False


def test_registered_experiments_have_their_own_names() -> None:
    assert all(name == experiment.name for name, experiment in experiments.REGISTRY.items())
    promised = {"throughput-grid", "fair-share", "inference-accuracy", "itm-step", "itm-api", "sensing-overhead"}
    promised |= {"signal-cost", "signal-abuse", "signal-timing", "signal-cells"}
    assert experiments.REGISTRY.keys() >= promised | {f"itm-{number}" for number in range(1, 8)}
    assert all(experiment.description for experiment in experiments.REGISTRY.values())


def test_applications_are_judged_by_their_worst_run() -> None:
    def of(lost: int, pause_ms: float) -> itm_api.Run:
        pauses_ms = dict.fromkeys(itm_api.FAULTS, 5.0) | {"slow=1000": pause_ms}
        return itm_api.Run(20, lost, 0, 4.0, pauses_ms, 900)

    figures = {figure.name: figure for figure in itm_api.figures([of(0, 24.0), of(1, 51.0)])}
    assert figures["replaced_under_load_lost"].met() is False
    outage = figures["crashed_application_outage_ms"]
    assert (outage.value, outage.peer, outage.met()) == (51.0, 4.0, False)
    assert {figure.name: figure for figure in itm_api.figures([of(0, 24.0)])}["replaced_under_load_lost"].met() is True
