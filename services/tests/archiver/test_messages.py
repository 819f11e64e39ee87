"""Rows as messages."""

from __future__ import annotations

import pytest

from chart.archiver.messages import message_of
from chart.v1 import archive_pb2

PATH = {"source": "a", "destination": "b", "metric": "rtt_us", "unit": "us"}


def test_columns_become_the_fields_of_their_names() -> None:
    row = {**PATH, "at_us": 5, "before": 1.5, "after": 2.5, "found_at": None}
    assert message_of(archive_pb2.PathChange, row) == archive_pb2.PathChange(
        source_node="a", destination_node="b", metric="rtt_us", unit="us", at_us=5, before=1.5, after=2.5
    )


def test_null_leaves_a_field_unset() -> None:
    row = {**PATH, "value": 3.0, "method": "measured", "interval_low": None, "interval_high": None, "at_us": 9}
    made = message_of(archive_pb2.SnapshotRow, row)
    assert made.value == 3.0
    assert not made.HasField("interval_low")
    estimated = message_of(archive_pb2.SnapshotRow, {**row, "interval_low": 0.0, "interval_high": 4.0})
    assert estimated.HasField("interval_low")
    assert estimated.interval_high == 4.0


def test_an_optional_field_needs_no_column_and_the_others_do() -> None:
    figures = dict.fromkeys(("mean", "p50", "p95", "p99", "minimum", "maximum"))
    row = {"at_us": 60_000_000, "count": 0, "failed": 2, **figures}
    made = message_of(archive_pb2.Rollup, row)
    assert made.failed == 2
    assert not made.HasField("loss_ratio")
    del row["failed"]
    with pytest.raises(KeyError, match="failed"):
        message_of(archive_pb2.Rollup, row)
