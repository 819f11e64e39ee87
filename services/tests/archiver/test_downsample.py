"""Seconds of link loads: averages, peaks, what may be committed, and reading twice."""

from __future__ import annotations

from chart.archiver.downsample import Downsampler
from chart.v1 import link_load_pb2

S = 1_000_000
BEGIN_US = 1_750_000_000 * S


def report(number: int, node: str = "alpha", sent_bytes: int = 1000) -> link_load_pb2.LinkLoadReport:
    load = link_load_pb2.LinkLoad(link_id=f"{node}:to-bravo", sent_bytes=sent_bytes, dropped_packets=1)
    return link_load_pb2.LinkLoadReport(
        node=node, interval_end_us=BEGIN_US + number * 100_000, interval_us=100_000, links=[load]
    )


def test_ten_intervals_are_one_row_with_mean_and_peak() -> None:
    downsampler = Downsampler()
    for number in range(1, 17):
        downsampler.add(0, number - 1, report(number, sent_bytes=2000 if number == 5 else 1000), BEGIN_US)
    (row,) = downsampler.take(BEGIN_US)
    assert (row["at_us"], row["samples"], row["dropped_packets"]) == (BEGIN_US, 10, 10)
    assert row["sent_bps"] == 1100 * 8 * 10
    assert row["sent_max_bps"] == 2000 * 8 * 10
    # The second that goes on begins with the report at offset 10.
    assert downsampler.done_offsets() == {0: 10}


def test_an_open_second_is_not_committed_until_its_node_was_silent() -> None:
    downsampler = Downsampler()
    downsampler.add(3, 40, report(5), BEGIN_US)
    assert downsampler.take(BEGIN_US + 2 * S) == []
    assert downsampler.done_offsets() == {3: 40}
    assert len(downsampler.take(BEGIN_US + 4 * S)) == 1
    assert downsampler.done_offsets() == {3: 41}


def test_old_reports_read_late_are_still_whole_seconds() -> None:
    downsampler = Downsampler()
    now_us = BEGIN_US + 3600 * S
    rows = []
    for number in range(1, 41):
        downsampler.add(0, number, report(number), now_us)
        rows += downsampler.take(now_us)
    assert [row["samples"] for row in rows] == [10, 10, 10]


def test_a_report_delivered_again_counts_once() -> None:
    downsampler = Downsampler()
    for _ in range(2):
        for number in range(1, 17):
            downsampler.add(0, number, report(number), BEGIN_US)
    (row,) = downsampler.take(BEGIN_US)
    assert row["samples"] == 10


def test_a_partition_that_went_away_is_forgotten() -> None:
    downsampler = Downsampler()
    downsampler.add(0, 1, report(1), BEGIN_US)
    downsampler.add(1, 7, report(1, "bravo"), BEGIN_US)
    downsampler.keep_only(frozenset({1}))
    assert downsampler.done_offsets() == {1: 7}
    assert [row["link_id"] for row in downsampler.take(BEGIN_US + 10 * S)] == ["bravo:to-bravo"]
