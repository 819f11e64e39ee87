"""Rules that are refused, conditions that hold, and what that means for alerts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chart.archiver import alerts
from chart.archiver.alerts import Finding, Open, PathState, RuleError
from chart.v1 import archive_pb2

NOW = 1_700_000_000_000_000
S = 1_000_000
PATH = ("alpha", "bravo", "rtt_us")


def rule(kind: str = "ABOVE", **fields: Any) -> archive_pb2.AlertRule:
    values = {"id": "r", "metric": "rtt_us", "threshold": 100.0, **fields}
    return alerts.check(archive_pb2.AlertRule(kind=archive_pb2.AlertKind.Value(f"ALERT_KIND_{kind}"), **values))


def state(p50: float | None = 50.0, *, silent_s: float = 5, **changes: Any) -> PathState:
    minute = {"p50": p50, "loss_ratio": 0.0, "maximum": 500.0}
    return replace(PathState(PATH, "us", 60.0, NOW - int(silent_s * S), NOW - 65 * S, minute), **changes)


def held(found: list[Finding]) -> list[tuple[str, str]]:
    return [finding.key for finding in found]


def test_thresholds() -> None:
    assert alerts.findings([rule()], [state(100.0)], NOW) == []
    (finding,) = alerts.findings([rule()], [state(101.0)], NOW)
    assert finding.key == ("r", "alpha,bravo,rtt_us")
    assert finding.summary == "rtt_us from alpha to bravo: p50 is 101 us, above 100 us"
    assert held(alerts.findings([rule(statistic="maximum")], [state()], NOW)) == [("r", "alpha,bravo,rtt_us")]
    assert held(alerts.findings([rule("BELOW")], [state(99.0)], NOW)) == [("r", "alpha,bravo,rtt_us")]
    assert alerts.findings([rule(source_node="charlie")], [state(101.0)], NOW) == []
    assert held(alerts.findings([rule(statistic="latest", threshold=59)], [state()], NOW))


def test_an_old_minute_says_nothing_about_now() -> None:
    old = state(101.0, minute_at_us=NOW - 200 * S, latest_at_us=NOW - 200 * S)
    assert alerts.findings([rule()], [old], NOW) == []
    assert alerts.findings([rule(statistic="latest", threshold=1)], [old], NOW) == []


def test_no_data() -> None:
    silent = rule("NO_DATA", for_s=30)
    assert alerts.findings([silent], [state(silent_s=29)], NOW) == []
    (finding,) = alerts.findings([silent], [state(silent_s=31)], NOW)
    assert "no result since 2023-11-14 22:12:49 UTC" in finding.summary
    # It holds since the last result, so it fires at once.
    assert alerts.steps([finding], [], NOW)[0].action == "fire"
    (failed,) = alerts.findings([silent], [state(latest=None, latest_at_us=0)], NOW)
    assert "every run has failed" in failed.summary
    named = rule("NO_DATA", for_s=30, source_node="alpha", destination_node="zulu")
    (never,) = alerts.findings([named], [state()], NOW)
    assert never.key == ("r", "alpha,zulu,rtt_us")
    assert alerts.findings([rule("NO_DATA", for_s=30, source_node="alpha")], [], NOW) == []


def test_changes_are_told_for_a_while() -> None:
    changed = rule("CHANGE", threshold=0.3, for_s=600)
    recent = state(change=(NOW - 300 * S, 10_000.0, 15_000.0))
    (finding,) = alerts.findings([changed], [recent], NOW)
    assert finding.value == pytest.approx(0.5)
    assert alerts.findings([changed], [recent], NOW + 301 * S) == []
    assert alerts.findings([rule("CHANGE", threshold=0.6)], [recent], NOW) == []


def test_an_alert_fires_when_it_held_long_enough_and_is_resolved_when_it_no_longer_does() -> None:
    lasting = rule(for_s=60)
    found = alerts.findings([lasting], [state(101.0)], NOW)
    (begin,) = alerts.steps(found, [], NOW)
    assert begin.action == "begin"
    waiting = Open("id", "r", "alpha,bravo,rtt_us", NOW, 0, 101.0, 100.0, found[0].summary)
    assert alerts.steps(found, [waiting], NOW + 59 * S) == []
    (fire,) = alerts.steps(found, [waiting], NOW + 60 * S)
    assert (fire.action, fire.holds_since_us) == ("fire", NOW)
    fired = replace(waiting, fired_at_us=NOW + 60 * S)
    assert alerts.steps(found, [fired], NOW + 90 * S) == []
    worse = alerts.findings([lasting], [state(150.0)], NOW)
    assert [step.action for step in alerts.steps(worse, [fired], NOW + 90 * S)] == ["update"]
    assert [step.action for step in alerts.steps([], [fired], NOW + 90 * S)] == ["resolve"]
    assert [step.action for step in alerts.steps([], [waiting], NOW + 90 * S)] == ["forget"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": "Not good"}, "id"),
        ({"metric": ""}, "metric"),
        ({"statistic": "p42"}, "statistic"),
        ({"threshold": float("nan")}, "threshold"),
        ({"kind": archive_pb2.ALERT_KIND_UNSPECIFIED}, "kind"),
        ({"kind": archive_pb2.ALERT_KIND_NO_DATA, "for_s": 5}, "for_s"),
        ({"kind": archive_pb2.ALERT_KIND_CHANGE, "threshold": -1.0}, "threshold"),
        ({"source_node": "-x"}, "source_node"),
        ({"for_s": 10**7}, "for_s"),
    ],
)
def test_rules_that_mean_nothing_are_refused(fields: dict[str, Any], field: str) -> None:
    values = {"id": "r", "metric": "rtt_us", "kind": archive_pb2.ALERT_KIND_ABOVE, **fields}
    with pytest.raises(RuleError) as error:
        alerts.check(archive_pb2.AlertRule(**values))
    assert error.value.field == field
