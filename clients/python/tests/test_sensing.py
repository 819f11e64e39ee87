"""Sensing through the client and the command, against a running gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import chart_client
from chart_client import Client
from chart_client.cli import build
from support.gateway_thread import Running


def nodes(chart: Client, gateway: Running) -> None:
    chart.nodes.put("alpha", sensor_pod_target=gateway.place.gateway.settings.archiver_target)
    chart.nodes.put("delta")


def test_single_runs_and_reports(gateway: Running) -> None:
    with Client() as chart:
        nodes(chart, gateway)
        (result,) = chart.sensing.run("alpha", "delta", "10.1.0.2")
        assert (result.metric, result.value, result.error) == ("rtt_us", 5, "")
        with pytest.raises(chart_client.ProblemError, match="budget is 5 bytes a minute"):
            chart.sensing.run("alpha", "delta", "10.1.0.2", "pathchirp")
        report = chart.sensing.report("alpha")
        assert (report.configurations, report.groups, report.skipped_runs) == (4, 1, {"budget": 2})
        assert report.skips[0].detail == "no room"
        with pytest.raises(chart_client.NotFoundError, match="no sensor pod"):
            chart.sensing.report("delta")


def test_estimates_and_history(gateway: Running) -> None:
    with Client() as chart:
        (estimate,) = chart.sensing.estimates(source="alpha")
        assert (estimate.value, estimate.interval_low, estimate.interval_high, estimate.age_s) == (5, 4, 7, 2)
        assert chart.sensing.next_pairs("rtt_us")[0].reason == "near"
        ranked = chart.sensing.closest("alpha", candidates=["bravo", "echo"])
        assert [(one.node, one.interval_high, one.may_be_best) for one in ranked.items] == [("bravo", 7, True)]
        assert ranked.unknown == ["echo"]
        assert chart.sensing.rank("alpha", "rtt_us", direction="to").items[0].node == "delta"
        relays = chart.sensing.relays("alpha", "delta")
        assert relays.direct is not None
        assert (relays.items[0].node, relays.direct.value) == ("bravo", 9)
        first, failed = chart.sensing.roll_ups("alpha", "delta", "rtt_us")
        assert (first.p95, first.loss_ratio, failed.p95, failed.failed) == (3, 0.5, None, 1)
        assert chart.sensing.baselines()[0].median == 5
        assert chart.sensing.path_changes()[0].after == 9


def test_snapshots(gateway: Running, tmp_path: Path) -> None:
    with Client() as chart:
        assert chart.snapshots.take().id == chart.snapshots.list()[0].id
        rows = list(chart.snapshots.rows())
        assert [(row.value, row.interval_high) for row in rows] == [(1, None), (2, 3)]
        target = tmp_path / "all.csv"
        assert chart.snapshots.download(target) == len(target.read_bytes())
        assert target.read_text() == "source,destination\nalpha,delta\n"


def test_alerts(gateway: Running) -> None:
    with Client() as chart:
        rule = chart.alerts.put_rule("slow", kind="above", metric="rtt_us", threshold=5000, for_s=60)
        assert (rule.revision, rule.statistic, rule.source_node) == (1, "p50", None)
        assert [one.rule for one in chart.alerts.list(firing=True)] == ["slow"]
        chart.alerts.delete_rule("slow")
        assert list(chart.alerts.rules()) == []
        with pytest.raises(chart_client.ProblemError, match="at least 10"):
            chart.alerts.put_rule("silent", kind="no_data", metric="rtt_us")


def test_commands(gateway: Running, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(build(arguments), list(arguments))
        assert result.exit_code == 0, result.output
        return result.output

    with Client() as chart:
        nodes(chart, gateway)
    run("sensing", "put", "c", "--from", "alpha", "--to", "delta", "--address", "10.1.0.2", "--parameter", "count=3")
    assert json.loads(run("sensing", "list", "--json"))[0]["parameters"] == {"count": "3"}
    assert "rtt_us" in run("sensing", "run", "--from", "alpha", "--to", "delta", "--address", "10.1.0.2")
    assert "no room" in run("sensing", "report", "alpha")
    run("sensing", "delete", "c")
    assert "landmark" in run("estimate", "list")
    assert "near" in run("estimate", "next")
    assert "bravo" in run("estimate", "closest", "alpha")
    assert "echo" in run("estimate", "rank", "alpha", "--candidate", "bravo", "--candidate", "echo")
    assert "without a relay" in run("estimate", "relays", "alpha", "delta")
    assert json.loads(run("estimate", "closest", "alpha", "--json"))["items"][0]["node"] == "bravo"
    assert "2 rows" in run("snapshot", "take")
    assert "alpha" in run("snapshot", "show")
    run("snapshot", "download", str(tmp_path / "all.parquet"))
    assert (tmp_path / "all.parquet").exists()
    run("snapshot", "rollups", "--from", "alpha", "--to", "delta")
    run("alert", "put-rule", "slow", "--kind", "above", "--metric", "rtt_us", "--threshold", "9")
    assert "FIRING" in run("alert", "list")
    assert "slow" in run("alert", "rules")
    run("alert", "delete-rule", "slow")
