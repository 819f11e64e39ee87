"""What `archive-load` makes of its counts."""

from __future__ import annotations

import random

import pytest

from chart.archiver.rows import rows_of
from chart.common.records import Record
from chart_lab.errors import LabError
from chart_lab.experiments import REGISTRY
from chart_lab.experiments import archive_load as experiment

NOW_US = 1_750_000_000_000_000


def test_rows_a_second_leave_out_what_was_there_at_the_first_look() -> None:
    assert experiment.rate([(10.0, 5_000), (11.0, 20_000), (12.0, 45_000)]) == pytest.approx(20_000)
    with pytest.raises(LabError):
        experiment.rate([(10.0, 5_000)])


def test_the_measurements_are_what_the_archiver_stores() -> None:
    chance = random.Random(1)
    made = [experiment.measurement(number, NOW_US, chance) for number in range(50)]
    for one in made:
        ((table, row),) = rows_of(Record("chart.measurement.v1", "k", one, {}, NOW_US, 0, 0))
        assert table == "measurement"
        assert row["source"] != row["destination"]
    assert len({one.id for one in made}) == 50
    assert len({experiment.month_pair(number) for number in range(experiment.MONTH_PAIRS)}) == experiment.MONTH_PAIRS
    assert "archive-load" in REGISTRY
