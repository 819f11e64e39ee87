"""What `sensing-overhead` makes of its counts; and a short real run."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart_lab.experiments import REGISTRY
from chart_lab.experiments import sensing_overhead as experiment
from chart_lab.experiments.framework import Figure, Settings
from chart_lab.models.sensing_day import Day
from chart_lab.models.shared_link import Shared, six_pods


def test_the_worst_minute_slides() -> None:
    # 10 bytes a second, and 500 at once at 90 s: no minute that does not hold it has more than 600.
    samples = [(float(at), 10 * at + (500 if at >= 90 else 0)) for at in range(180)]
    assert experiment.worst_minute(samples) == 60 * 10 + 500
    assert experiment.worst_minute(samples[:90]) == 600
    assert experiment.worst_minute(samples[:1]) == 0


def test_ten_thousand_configurations_are_a_quarter_as_many_measurements() -> None:
    made = experiment.configurations()
    assert len({one.id for one in made}) == len(made) == 10_000
    assert len({(one.destination_address, one.parameters["packet_bytes"]) for one in made}) == 2_500
    asked, overlap = experiment.asked_runs(made, 120)
    # At 60, 90, 120 and 180 s a configuration runs 2, 1.3, 1 and 0.7 times in 120 s, and once when it is new.
    assert 2_500 * (2 + 1.3 + 1 + 0.6) <= asked <= 2_500 * (3 + 2.4 + 2 + 1.7)
    assert 0.5 < overlap < 0.75


def test_a_goal_is_not_rounded_up() -> None:
    # As recorded: 5,539 runs of 15,454 asked for were needed and made.
    share = 1 - 5_539 / 15_454
    assert experiment.at_least(share) == ">= 0.6415"
    assert Figure("merged_share", share, "ratio", experiment.at_least(share)).met()


def test_the_worse_of_real_run_and_day_is_told() -> None:
    day = Day(10, 5, 0, 50, 100, 50, 0.4, 0.0099, "l", {"budget": 1}, 0, 1.0)
    real = experiment.Real(40, 100, 0.55, 0.004, 1.0, 3.0, 9.0, 40, {}, 120)
    shared = Shared(0.0098, 0.9, 100)
    found = {figure.name: figure for figure in experiment.figures(real, day, shared)}
    assert found["worst_share_of_link"].value == 0.0098
    assert found["max_share_of_capacity"].value == 0.0099
    assert found["merged_share"].value == pytest.approx(0.6)
    assert found["merged_share"].met()
    assert found["lateness_p99_ms"].value == 3.0
    assert "sensing-overhead" in REGISTRY


def test_six_pods_share_one_links_budget_in_both_directions_and_use_it() -> None:
    shared = six_pods(450)
    assert shared.worst_share <= 0.01
    assert shared.used_share > 0.7


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_run_keeps_the_budget_and_merges(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path, duration_s=40, judge_noise=False)
    outcome = experiment.run(settings, lambda words, share: None)
    found = {figure.name: figure for figure in outcome.figures}
    assert found["max_share_of_capacity"].met()
    assert found["merged_share"].met()
    assert outcome.details["real"]["measured_runs"] > 1_000
