"""Messages of pods, inference and archiver as answers."""

from __future__ import annotations

from chart.gateway import mapping_sensing as mapping
from chart.v1 import archive_pb2, estimate_pb2, inference_pb2, measurement_pb2, sensor_pod_pb2

AT_US = 1_700_000_000_000_000
AT = "2023-11-14T22:13:20Z"


def test_estimates_and_pairs() -> None:
    told = estimate_pb2.Estimate(
        source_node="a",
        destination_node="b",
        metric="rtt_us",
        value=5.0,
        unit="us",
        method="landmark",
        interval_low=4.0,
        interval_high=7.0,
        estimated_at_us=AT_US,
    )
    answer = mapping.estimate(told, 2_500_000)
    assert (answer.source_node, answer.destination_node, answer.metric) == ("a", "b", "rtt_us")
    assert (answer.value, answer.unit, answer.method) == (5.0, "us", "landmark")
    assert (answer.interval_low, answer.interval_high, answer.age_s) == (4.0, 7.0, 2.5)
    assert answer.estimated_at.startswith(AT[:19])
    assert mapping.estimate(told, -1).age_s == 0
    pair = inference_pb2.NextPair(source_node="a", destination_node="b", metric="m", reason="near", relative_width=0.5)
    assert mapping.next_pair(pair).model_dump() == {
        "source_node": "a",
        "destination_node": "b",
        "metric": "m",
        "reason": "near",
        "relative_width": 0.5,
    }


def test_paths() -> None:
    usual = mapping.baseline(
        archive_pb2.Baseline(source_node="a", metric="rtt_us", median=2.0, spread=0.1, minutes=7, since_us=AT_US)
    )
    assert (usual.source_node, usual.median, usual.spread, usual.minutes) == ("a", 2.0, 0.1, 7)
    assert usual.since.startswith(AT[:19])
    change = mapping.path_change(
        archive_pb2.PathChange(destination_node="b", unit="us", at_us=AT_US, before=1.0, after=3.0)
    )
    assert (change.destination_node, change.before, change.after, change.unit) == ("b", 1.0, 3.0, "us")


def test_snapshots_have_intervals_only_where_something_was_estimated() -> None:
    row = archive_pb2.SnapshotRow(source_node="a", destination_node="b", metric="m", value=1.0, method="measured")
    assert mapping.snapshot_row(row).interval_low is None
    row.interval_low, row.interval_high = 0.0, 2.0
    answer = mapping.snapshot_row(row)
    assert (answer.interval_low, answer.interval_high) == (0.0, 2.0)
    one = mapping.snapshot(archive_pb2.Snapshot(id="x", taken_at_us=AT_US, metrics=["b", "c"], nodes=2, rows=4))
    assert (one.id, one.metrics, one.nodes, one.rows) == ("x", ["b", "c"], 2, 4)


def test_alerts_that_fire_have_no_end() -> None:
    fired = archive_pb2.AlertRecord(id="x", rule="slow", subject="a,b,m", value=9.0, threshold=5.0, fired_at_us=AT_US)
    answer = mapping.alert(fired)
    assert answer.resolved_at is None
    assert (answer.rule, answer.value, answer.threshold) == ("slow", 9.0, 5.0)
    fired.resolved_at_us = AT_US
    assert str(mapping.alert(fired).resolved_at).startswith(AT[:19])


def test_runs_and_reports() -> None:
    run = sensor_pod_pb2.RunOnceResponse(
        measurements=[measurement_pb2.Measurement(metric="rtt_us", value=3.0, unit="us", measured_at_us=AT_US)]
    )
    (result,) = mapping.run_results(run).items
    assert (result.metric, result.value, result.unit, result.error) == ("rtt_us", 3.0, "us", "")
    told = sensor_pod_pb2.ReportResponse(
        node="a",
        configurations=4,
        skipped_runs={"budget": 2},
        links=[sensor_pod_pb2.LinkBudget(link_id="a:b", capacity_bps=8, limit_bytes=7, used_bytes=6)],
        skips=[sensor_pod_pb2.SkippedRun(at_us=AT_US, group="g", reason="budget", detail="d", count=2)],
        applications=[sensor_pod_pb2.ApplicationUse(owner="video", configurations=3, used_bytes=5)],
    )
    report = mapping.report(told)
    assert (report.node, report.configurations, report.skipped_runs) == ("a", 4, {"budget": 2})
    assert report.links[0].model_dump() == {"link": "a:b", "capacity_bps": 8, "limit_bytes": 7, "used_bytes": 6}
    assert (report.skips[0].reason, report.skips[0].count) == ("budget", 2)
    assert report.applications[0].application == "video"
