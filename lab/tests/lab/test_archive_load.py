"""What `archive-load` makes of its counts."""

from __future__ import annotations

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
    made = list(experiment.measurements(60_100, NOW_US, 1))
    for one in made[:50]:
        ((table, row),) = rows_of(Record("chart.measurement.v1", "k", one, {}, NOW_US, 0, 0))
        assert table == "measurement"
        assert row["source"] != row["destination"]
    paths = {(one.source_node, one.destination_node, one.metric) for one in made}
    assert len(paths) == experiment.PAIRS * len(experiment.METRICS)
    # The second round is later than the first.
    assert made[0].measured_at_us < made[60_000].measured_at_us <= NOW_US
    assert len({one.id for one in made}) == 60_100
    assert len({experiment.month_pair(number) for number in range(experiment.MONTH_PAIRS)}) == experiment.MONTH_PAIRS
    assert "archive-load" in REGISTRY
