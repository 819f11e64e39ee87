"""What sensing-accuracy makes of its settings and of what it measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from chart_lab.experiments import noise
from chart_lab.experiments import sensing_accuracy as module
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.sensing_accuracy import Cell, Measured
from chart_lab.network import Lab


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


def test_a_spoilt_run_is_made_again_and_stands_when_all_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quiet = noise.Noise(0.0, 0.0, 0.0, 0)
    loud = noise.Noise(0.0, 1.0, 0.0, 0)
    clean = measured("pathchirp", 100, 0.5, 0.5)
    spoilt = replace(measured("pathchirp", 100, None, 0.5), spoilt=True)

    def of(*runs: tuple[Measured, noise.Noise]) -> tuple[Measured | None, str]:
        left = iter(runs)
        monkeypatch.setattr(module, "measure", lambda *_: (*next(left), 0.5))
        return module._measure_quietly(cast(Lab, None), clean.cell, tmp_path, 1e8, Settings(tmp_path))

    assert of((spoilt, quiet), (clean, quiet)) == (clean, "")
    assert of((spoilt, quiet), (spoilt, quiet), (spoilt, quiet)) == (spoilt, "")
    assert of((clean, loud), (spoilt, quiet), (clean, quiet)) == (clean, "")
    found, complaint = of((clean, loud), (clean, loud), (clean, loud))
    assert found is None
    assert "hypervisor" in complaint
