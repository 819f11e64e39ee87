"""Questions about history: bounds, gaps, values that hold, rates from counters, records as rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.archiver import service
from chart.archiver.repository import Sample
from chart.archiver.rows import UnarchivableError, rows_of
from chart.archiver.service import Point, QuestionError, Window, window_of
from chart.common.records import Record
from chart.v1 import measurement_pb2

S = 1_000_000
BEGIN_US = 1_750_000_000 * S


@given(st.integers(1, 10**13), st.integers(0, 10**7), st.integers(0, 20_000), st.integers(0, 10**6))
def test_no_answer_has_more_points_than_asked(length_us: int, step_ms: int, max_points: int, raw_count: int) -> None:
    window = window_of(BEGIN_US, BEGIN_US + length_us, step_ms, max_points, raw_count=raw_count)
    bound = min(max_points or service.MAX_POINTS, service.MAX_POINTS_CEILING)
    if window.step_us:
        assert -(-length_us // window.step_us) <= bound
        assert len(service.with_gaps([], window)) <= bound
    else:
        assert raw_count <= bound


@pytest.mark.parametrize(("from_us", "until_us"), [(BEGIN_US, BEGIN_US), (0, BEGIN_US), (BEGIN_US, 2**62)])
def test_a_range_that_is_none_is_refused(from_us: int, until_us: int) -> None:
    with pytest.raises(QuestionError):
        window_of(from_us, until_us, 1000, 0)


def test_gaps_are_points_without_a_value() -> None:
    window = Window(BEGIN_US, BEGIN_US + 3 * S, S, 10)
    points = service.with_gaps([Sample(BEGIN_US + S, 5, 4, 6, 2)], window)
    assert points == [Point(BEGIN_US), Point(BEGIN_US + S, 5, 4, 6, 2), Point(BEGIN_US + 2 * S)]


def test_a_held_value_is_weighted_by_time_and_ends_with_its_lease() -> None:
    window = Window(BEGIN_US, BEGIN_US + 4 * S, S, 10)
    changes = [(BEGIN_US - S, BEGIN_US + 9 * S, 10.0), (BEGIN_US + S // 4, BEGIN_US + S // 4 + 2 * S, 20.0)]
    samples = service.held(changes, window)
    assert [(sample.at_us - BEGIN_US, sample.value) for sample in samples] == [(0, 17.5), (S, 20.0), (2 * S, 20.0)]
    assert (samples[0].minimum, samples[0].maximum) == (10.0, 20.0)


def test_sent_rate_comes_from_the_counter_of_the_sender_and_survives_its_restart() -> None:
    statuses = [
        (BEGIN_US, "alpha", 5e6, 0),
        (BEGIN_US, "bravo", 0.0, 0),
        (BEGIN_US + S, "alpha", 5e6, 625_000),
        (BEGIN_US + 2 * S, "alpha", 5e6, 10),
        (BEGIN_US + 3 * S, "alpha", 5e6, 125_010),
    ]
    rates = service.grant_sent_rate(statuses)
    assert [(sample.at_us - BEGIN_US, sample.value) for sample in rates] == [(S, 5e6), (3 * S, 1e6)]
    assert {entry[2] for entry in service.grant_kernel_rate(statuses, S)} == {5e6}


def record(**changes: object) -> Record:
    values: dict[str, object] = {
        "id": "1",
        "source_node": "a",
        "destination_node": "b",
        "metric": "rtt_us",
        "value": 1.0,
        "measured_at_us": BEGIN_US,
        **changes,
    }
    value = measurement_pb2.Measurement(**values)  # type: ignore[arg-type]
    return Record("chart.measurement.v1", "a,b,rtt_us", value, {}, BEGIN_US, 0, 0)


def test_text_that_the_database_cannot_hold_is_made_fit() -> None:
    ((table, row),) = rows_of(record(error="a\0b"))
    assert table == "measurement"
    assert row["error"] == "a�b"


@pytest.mark.parametrize("change", [{"id": ""}, {"value": float("nan")}, {"measured_at_us": -5}, {"metric": ""}])
def test_a_record_without_identity_time_or_number_is_rejected(change: dict[str, object]) -> None:
    with pytest.raises(UnarchivableError):
        rows_of(record(**change))


HOUR = 3600 * S


@pytest.mark.parametrize(
    ("days_ago", "step_s", "resolution"),
    [
        (20, 3600, "hour"),
        (400, 86_400, "hour"),
        (20, 600, "minute"),
        # Minutes of then are gone.
        (40, 600, None),
        (20, 90, None),
        (0, 3600, None),
        (20, 0, None),
    ],
)
def test_long_series_come_from_rollups_that_are_kept(days_ago: int, step_s: int, resolution: str | None) -> None:
    now_us = BEGIN_US + 5 * 60 * S
    window = Window(now_us - days_ago * 24 * HOUR - HOUR, now_us, step_s * S, 1000)
    found = service.rolled_from(window, now_us, minute_days=30)
    assert (found and found[0]) == resolution
    if found is not None:
        assert found[1] % HOUR == 0
        assert 2 * HOUR <= now_us - found[1] < 3 * HOUR
