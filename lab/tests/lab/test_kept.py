"""Finished measurements that outlive the command which made them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from chart_lab.errors import LabError, UnfinishedError
from chart_lab.experiments import fairness, two_path_grid
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.kept import KEPT_FILE, Kept

CONDITIONS = {"windows": (1, 2)}


@dataclass(frozen=True)
class Speed:
    """A measurement."""

    bps: float


def kept(settings: Settings, conditions: dict[str, Any] | None = None) -> Kept[Speed]:
    return Kept(settings, conditions or CONDITIONS, write=asdict, read=lambda record: Speed(**record))


def never() -> Speed:
    raise AssertionError("measured again")


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "new", resume=True)
    assert kept(settings).measured({"loss": 0.1, "flows": ("a", "b")}, lambda: Speed(7.0), 1.0) == Speed(7.0)
    resumed = kept(settings)
    assert len(resumed) == 1
    assert resumed.measured({"flows": ["a", "b"], "loss": 0.1}, never, 1.0) == Speed(7.0)
    assert resumed.made == 0
    assert resumed.get({"loss": 0.2, "flows": ("a", "b")}) is None


def test_other_conditions_stay_in_the_file_and_do_not_count(tmp_path: Path) -> None:
    settings = Settings(tmp_path, resume=True)
    kept(settings).add("one", Speed(7.0))
    other = kept(settings, {"windows": (1, 3)})
    assert other.get("one") is None
    other.add("one", Speed(8.0))
    assert (kept(settings).get("one"), len(kept(settings))) == (Speed(7.0), 1)


def test_a_run_that_nobody_judged_does_not_count_as_judged(tmp_path: Path) -> None:
    settings = Settings(tmp_path, resume=True)
    kept(replace(settings, judge_noise=False)).add("one", Speed(7.0))
    assert kept(settings).get("one") is None


def test_a_measurement_that_fails_leaves_the_finished_ones(tmp_path: Path) -> None:
    settings = Settings(tmp_path, resume=True)
    first = kept(settings)
    first.measured("one", lambda: Speed(7.0), 1.0)
    with pytest.raises(AssertionError, match="measured again"):
        first.measured("two", never, 1.0)
    assert kept(settings).get("one") == Speed(7.0)
    assert kept(settings).get("two") is None


def test_begun_anew_nothing_is_left(tmp_path: Path) -> None:
    settings = Settings(tmp_path, resume=True)
    kept(settings).add("one", Speed(7.0))
    assert len(kept(replace(settings, resume=False))) == 0
    assert not (tmp_path / KEPT_FILE).exists()


def test_nothing_begins_that_the_slice_has_no_time_for(tmp_path: Path) -> None:
    own = kept(Settings(tmp_path, slice_s=57.0))
    # The first one always may, or a slice that is too short would never come to an end.
    assert own.measured("one", lambda: Speed(7.0), 100.0) == Speed(7.0)
    assert own.measured("two", lambda: Speed(8.0), 45.0) == Speed(8.0)
    with pytest.raises(UnfinishedError, match=r"^2 measurements are in .* of 50 s .* --slice-s 57: .* --resume"):
        own.measured("three", never, 50.0)


@pytest.mark.parametrize(
    "line", ["words", "{}", "7", '{"conditions": {"windows": [1, 2], "judge_noise": true}, "of": 1, "measured": 7}']
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, line: str) -> None:
    settings = Settings(tmp_path, resume=True)
    kept(settings).add("one", Speed(7.0))
    with (tmp_path / KEPT_FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(LabError, match=r"runs\.jsonl:2 is no measurement of this experiment .* without --resume"):
        kept(settings)


def test_runs_of_fairness_and_two_path_grid_come_back_as_they_were() -> None:
    sets = fairness.SetRun(0.01, 10.0, "cubic", "chart", (1e6, 2e6), (3e6, 4e6), 100.0, (24.0, 25.0), (0.01, 0.0))
    assert fairness.read_run(asdict(sets)) == sets
    run = two_path_grid.Run(two_path_grid.Point(64, 0.01, 10.0), "chart", 9e7, None)
    assert two_path_grid.read_run(asdict(run)) == run
