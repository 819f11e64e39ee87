"""Runs of the elastic-tunnel experiments that outlive the command which made them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from chart_lab.experiments import noise
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.itm import PLANS
from chart_lab.experiments.itm_kept import KeptRuns, of
from chart_lab.experiments.itm_run import Run

WAVE = PLANS["itm-4"].scenarios[0]


def made(seed: int) -> Run:
    decisions = [{"connections": 9, "gains": {"kp": 0.1, "ki": 0.2}}]
    quiet = noise.Noise(0.01, 0.0, 12.5, 0)
    return Run(WAVE, "pi", 0.5, seed, [2.0], [900.5], [8], [900.0], [10], decisions, 3, quiet)


def test_a_run_is_measured_once(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path / "new", duration_s=50.0)
    KeptRuns(settings).add(of(WAVE, "pi", 1000), made(1000))
    resumed = KeptRuns(dataclasses.replace(settings, resume=True))
    assert resumed.run(WAVE, "pi", 1000) == made(1000)
    assert resumed.made == 0
    assert resumed.get(of(PLANS["itm-1"].scenarios[0], "pi", 1000)) is None
    assert resumed.get(of(WAVE, "p", 1000)) is None


@pytest.mark.parametrize("changed", [{"duration_s": 60.0}, {"congestion": ("cubic",)}, {"duration_s": None}])
def test_a_run_of_other_conditions_does_not_count(tmp_path: Path, changed: dict[str, object]) -> None:
    settings = Settings(out=tmp_path, duration_s=50.0)
    KeptRuns(settings).add(of(WAVE, "pi", 1000), made(1000))
    other = KeptRuns(dataclasses.replace(settings, resume=True, **changed))  # type: ignore[arg-type]
    assert other.get(of(WAVE, "pi", 1000)) is None
