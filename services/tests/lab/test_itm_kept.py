"""Runs of the elastic-tunnel experiments that outlive the command which made them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from chart.lab.errors import LabError, UnfinishedError
from chart.lab.experiments import noise
from chart.lab.experiments.framework import Settings
from chart.lab.experiments.itm import PLANS
from chart.lab.experiments.itm_kept import KeptRuns
from chart.lab.experiments.itm_run import Run

WAVE = PLANS["itm-4"].scenarios[0]


def made(seed: int) -> Run:
    decisions = [{"connections": 9, "gains": {"kp": 0.1, "ki": 0.2}}]
    quiet = noise.Noise(0.01, 0.0, 12.5, 0)
    return Run(WAVE, "pi", 0.5, seed, [2.0], [900.5], [8], [900.0], [10], decisions, 3, quiet)


def keep(settings: Settings, run: Run) -> None:
    kept = KeptRuns(settings)
    kept.keep(kept.conditions(run.scenario, run.controller, run.seed), run)


def test_a_run_is_measured_once(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path / "new", duration_s=50.0)
    keep(settings, made(1000))
    resumed = KeptRuns(dataclasses.replace(settings, resume=True))
    assert resumed.run(WAVE, "pi", 1000) == made(1000)
    assert resumed.made == 0


@pytest.mark.parametrize("changed", [{"duration_s": 60.0}, {"congestion": ("cubic",)}, {"duration_s": None}])
def test_a_run_of_other_conditions_does_not_count(tmp_path: Path, changed: dict[str, object]) -> None:
    settings = Settings(out=tmp_path, duration_s=50.0)
    keep(settings, made(1000))
    other = KeptRuns(dataclasses.replace(settings, resume=True, **changed))  # type: ignore[arg-type]
    assert other.conditions(WAVE, "pi", 1000) not in other.kept
    assert other.conditions(PLANS["itm-1"].scenarios[0], "pi", 1000) not in other.kept
    # Begun anew, nothing is left of it.
    assert not KeptRuns(settings).kept
    assert not settings.out.joinpath("runs.jsonl").exists()


def test_no_run_begins_that_the_slice_has_no_time_for(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path, duration_s=50.0, slice_s=57.0)
    kept = KeptRuns(settings)
    kept.keep(kept.conditions(WAVE, "pi", 1000), made(1000))
    kept.made = 1
    with pytest.raises(UnfinishedError, match=r"^1 runs are in .* --slice-s 57: .* --resume"):
        kept.run(WAVE, "pi", 1001)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"cell": 1}\n')
    with pytest.raises(LabError, match=r"runs.jsonl:1 is no run of an experiment"):
        KeptRuns(Settings(out=tmp_path, resume=True))
