"""What sensing-accuracy makes of its settings and of what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart.lab.experiments import sensing_accuracy as module
from chart.lab.experiments.framework import Settings
from chart.lab.experiments.sensing_accuracy import Cell, Measured


def measured(sensor: str, rate_mbit: float, share: float | None, truth_share: float = 1.0) -> Measured:
    rate_bps = rate_mbit * 1e6
    cell = Cell(rate_mbit, "poisson", 1 - truth_share, sensor, 0)
    return Measured(cell, None if share is None else share * rate_bps, truth_share * rate_bps)


def test_a_link_without_load_is_measured_once_for_all_kinds() -> None:
    found = module.cells(Settings(Path("x"), rate_mbit=(10.0,), load=(0.0, 0.5), repeat=2))
    assert found == [
        (10.0, "none", 0.0, 0),
        (10.0, "none", 0.0, 1),
        (10.0, "poisson", 0.5, 0),
        (10.0, "poisson", 0.5, 1),
        (10.0, "burst", 0.5, 0),
        (10.0, "burst", 0.5, 1),
    ]
    assert len(module.cells(Settings(Path("x")))) == 4 * (1 + 4 * 2)


def test_figures_are_medians_and_fast_links_have_no_goal() -> None:
    results = [
        measured("pathrate", 100, 1.02),
        measured("pathrate", 600, 1.3),
        measured("spruce", 100, 0.55, 0.5),
        measured("pathchirp", 100, 0.4, 0.5),
        measured("pathchirp", 100, None, 0.5),
    ]
    found = {figure.name: figure for figure in module.figures(results)}
    assert found["capacity_median_error"].value == pytest.approx(0.02)
    assert found["available_bandwidth_median_error"].value == pytest.approx(0.2)
    assert found["capacity_median_error/sensor=pathrate/rate_mbit=600"].goal is None
    assert found["capacity_median_error/sensor=pathrate/rate_mbit=600"].value == pytest.approx(0.3)
    assert found["available_bandwidth_median_error/sensor=spruce/rate_mbit=100"].value == pytest.approx(0.1)
    # A sensor that says nothing is wrong by all of it.
    assert found["available_bandwidth_median_error/sensor=pathchirp/rate_mbit=100"].value == pytest.approx(0.6)
    assert "| pathchirp | 100 | poisson | 0.5 | nothing |" in module.table(results)


def test_nearly_full_links_are_judged_by_a_least_share() -> None:
    assert measured("spruce", 100, 0.03, 0.01).relative_error == pytest.approx(0.4)
