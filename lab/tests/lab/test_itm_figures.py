"""Plots of the elastic-tunnel experiments that are laid over the paper's figures."""

from __future__ import annotations

from pathlib import Path

from chart_lab.experiments.itm import PLANS
from chart_lab.experiments.itm_figures import curves, plot
from chart_lab.experiments.itm_run import Run, backlogged

WAVE = PLANS["itm-4"].scenarios[0]


def made(controller: str, seed: int, connections: list[int]) -> Run:
    periods = len(connections)
    rates = [100.0 * m for m in connections]
    at_s = [2.0 * (number + 1) for number in range(periods)]
    return Run(WAVE, controller, 1.0, seed, at_s, rates, connections, [900.0] * periods, [10] * periods)


def test_axes_are_the_papers_and_repeated_runs_have_a_mean() -> None:
    found = {
        one.name: one for one in curves([made("naive", 1, [4, 8, 20]), made("naive", 2, [6, 8]), made("pi", 1, [3])])
    }
    assert set(found) == {
        f"wave-{name}-{what}"
        for name in ("naive-1", "naive-2", "naive-mean", "pi-1")
        for what in ("rate", "connections")
    }
    rate, connections = found["wave-naive-mean-rate"], found["wave-naive-mean-connections"]
    assert (rate.until_s, rate.highest) == (100.0, 2000.0)
    assert (list(rate.at_s), list(rate.values)) == ([2.0, 4.0], [500.0, 800.0])
    assert (list(connections.values), connections.highest) == ([5.0, 8.0], 20.0)


def test_an_overlay_fills_its_drawing(tmp_path: Path) -> None:
    plot([made("pi", 7, [3, 4, 5])], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
    assert (tmp_path / "wave-pi-7.svg").exists()
    drawn = (tmp_path / "overlays" / "wave-pi-7-rate.svg").read_text()
    assert "0 to 100 s, 0 to 2000" in drawn
    # 5 by 3 inches of 72 points without a margin: the first period's 2 s of 100, and 300 of 2000 packets/s.
    assert "M 7.2 183.6" in drawn


def test_a_tunnel_that_users_do_not_fill_says_nothing_about_its_connections() -> None:
    assert backlogged({"backlogged_us": 1_000_000, "report": {"interval_us": 2_000_000}})
    assert not backlogged({"backlogged_us": 999_999, "report": {"interval_us": 2_000_000}})
