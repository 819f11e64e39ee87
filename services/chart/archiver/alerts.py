"""Alert rules: thresholds, no data, changes of paths; what holds and what that means for alerts. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from chart.common import names
from chart.v1 import archive_pb2

Kind = archive_pb2.AlertKind
STATISTICS = ("latest", "mean", "p50", "p95", "p99", "minimum", "maximum", "loss_ratio")
LEAST_NO_DATA_S = 10
MOST_FOR_S = 7 * 86_400
# A change is told this long when the rule does not say.
CHANGE_TOLD_S = 900
# A threshold says nothing about a path whose last minute is older than this; that is what "no data" is for.
FRESH_S = 180
_IDENTITY = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,63}")

Path = tuple[str, str, str]


class RuleError(ValueError):
    """A rule that is not valid: ``field`` is at fault, the message states what would be accepted."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field


@dataclass(frozen=True)
class PathState:
    """Latest values of a path; None where there is no data."""

    path: Path
    unit: str
    # The newest good result, and when.
    latest: float | None
    latest_at_us: int
    # The last whole minute with data: its start and statistics by name.
    minute_at_us: int = 0
    minute: Mapping[str, float | None] | None = None
    # The last change of its level: when, before, after.
    change: tuple[int, float, float] | None = None


@dataclass(frozen=True)
class Finding:
    """A rule's condition holds on a path."""

    rule: archive_pb2.AlertRule
    path: Path
    value: float
    summary: str
    # When it began to hold, where that is known better than "now".
    since_us: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(rule, subject) of the alert."""
        return self.rule.id, ",".join(self.path)


@dataclass(frozen=True)
class Open:
    """An alert that is stored and not resolved; ``fired_at_us`` 0: it has not held long enough yet."""

    id: str
    rule: str
    subject: str
    holds_since_us: int
    fired_at_us: int
    value: float
    threshold: float
    summary: str


@dataclass(frozen=True)
class Step:
    """What to do with an alert: "begin", "fire", "update", "resolve" or "forget"."""

    action: str
    finding: Finding | None
    alert: Open | None
    # When a fired one began to hold.
    holds_since_us: int = 0


def check(rule: archive_pb2.AlertRule) -> archive_pb2.AlertRule:
    """A rule in its stored form.

    Raises:
        RuleError: naming the field.
    """
    if not _IDENTITY.fullmatch(rule.id):
        raise RuleError("id", f"{rule.id!r} must be 1 to 63 of a-z, 0-9 and -, neither first nor last a -")
    if rule.kind not in (Kind.ALERT_KIND_ABOVE, Kind.ALERT_KIND_BELOW, Kind.ALERT_KIND_NO_DATA, Kind.ALERT_KIND_CHANGE):
        raise RuleError("kind", "must be above, below, no_data or change")
    for field in ("source_node", "destination_node"):
        value = getattr(rule, field)
        if value and not names.is_node(value):
            raise RuleError(field, f"{value!r} is not a node name; empty: any")
    if not _METRIC.fullmatch(rule.metric):
        raise RuleError("metric", f"{rule.metric!r} is not a metric name, such as rtt_us")
    if not math.isfinite(rule.threshold):
        raise RuleError("threshold", "must be a number")
    if rule.for_s > MOST_FOR_S:
        raise RuleError("for_s", f"must be at most {MOST_FOR_S}")
    if len(rule.description) > 1000:
        raise RuleError("description", "must be at most 1000 characters")
    stored = archive_pb2.AlertRule()
    stored.CopyFrom(rule)
    stored.revision = 0
    if rule.kind in (Kind.ALERT_KIND_ABOVE, Kind.ALERT_KIND_BELOW):
        stored.statistic = rule.statistic or "p50"
        if stored.statistic not in STATISTICS:
            raise RuleError("statistic", f"{rule.statistic!r} is not one of {', '.join(STATISTICS)}")
        return stored
    stored.statistic = ""
    if rule.kind == Kind.ALERT_KIND_NO_DATA and rule.for_s < LEAST_NO_DATA_S:
        raise RuleError("for_s", f"must be at least {LEAST_NO_DATA_S} s for kind no_data, is {rule.for_s}")
    if rule.kind == Kind.ALERT_KIND_CHANGE and rule.threshold < 0:
        raise RuleError("threshold", "relative difference, must not be negative")
    return stored


def applies(rule: archive_pb2.AlertRule, path: Path) -> bool:
    """Whether a rule is about a path."""
    source, destination, metric = path
    return rule.metric == metric and rule.source_node in ("", source) and rule.destination_node in ("", destination)


def findings(rules: Iterable[archive_pb2.AlertRule], states: Sequence[PathState], now_us: int) -> list[Finding]:
    """Every rule and path whose condition holds now."""
    by_metric: dict[str, list[PathState]] = {}
    for state in states:
        by_metric.setdefault(state.path[2], []).append(state)
    found = []
    for rule in rules:
        about = [state for state in by_metric.get(rule.metric, ()) if applies(rule, state.path)]
        found += [finding for state in about if (finding := _holds(rule, state, now_us)) is not None]
        named = (rule.source_node, rule.destination_node, rule.metric)
        known = any(state.path == named for state in about)
        if rule.kind == Kind.ALERT_KIND_NO_DATA and all(named) and not known:
            # A path that is named and no measurement yet at all.
            found.append(Finding(rule, named, 0.0, f"{_words(named)}: no measurement yet"))
    return found


def _words(path: Path) -> str:
    return f"{path[2]} from {path[0]} to {path[1]}"


def _holds(rule: archive_pb2.AlertRule, state: PathState, now_us: int) -> Finding | None:
    if rule.kind == Kind.ALERT_KIND_NO_DATA:
        silent_us = now_us - state.latest_at_us
        if silent_us <= rule.for_s * 1_000_000:
            return None
        if not state.latest_at_us:
            return Finding(rule, state.path, 0.0, f"{_words(state.path)}: every run has failed")
        since = datetime.fromtimestamp(state.latest_at_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        words = f"{_words(state.path)}: no result since {since}"
        return Finding(rule, state.path, silent_us / 1e6, words, state.latest_at_us)
    if rule.kind == Kind.ALERT_KIND_CHANGE:
        return _changed(rule, state, now_us)
    value = _statistic(rule, state, now_us)
    if value is None:
        return None
    above = rule.kind == Kind.ALERT_KIND_ABOVE
    if not (value > rule.threshold if above else value < rule.threshold):
        return None
    unit = "" if rule.statistic == "loss_ratio" else f" {state.unit}"
    side = "above" if above else "below"
    words = f"{_words(state.path)}: {rule.statistic} is {value:.6g}{unit}, {side} {rule.threshold:.6g}{unit}"
    return Finding(rule, state.path, value, words)


def _changed(rule: archive_pb2.AlertRule, state: PathState, now_us: int) -> Finding | None:
    if state.change is None:
        return None
    at_us, before, after = state.change
    relative = abs(after - before) / max(abs(before), 1e-9)
    if relative < rule.threshold or now_us - at_us > (rule.for_s or CHANGE_TOLD_S) * 1_000_000:
        return None
    words = f"{_words(state.path)}: from {before:.6g} to {after:.6g} {state.unit}".rstrip()
    return Finding(rule, state.path, relative, words, at_us)


def _statistic(rule: archive_pb2.AlertRule, state: PathState, now_us: int) -> float | None:
    if rule.statistic == "latest":
        return state.latest if now_us - state.latest_at_us <= FRESH_S * 1_000_000 else None
    if state.minute is None or now_us - state.minute_at_us > FRESH_S * 1_000_000:
        return None
    return state.minute.get(rule.statistic)


def steps(found: Sequence[Finding], alerts: Sequence[Open], now_us: int) -> list[Step]:
    """Changes that bring the stored alerts in line with the findings."""
    by_key = {(alert.rule, alert.subject): alert for alert in alerts}
    decided: list[Step] = []
    for finding in found:
        alert = by_key.pop(finding.key, None)
        # The silence of "no data", and the time that a change is told, are in the condition itself.
        waits_s = 0 if finding.since_us is not None or not finding.rule.for_s else finding.rule.for_s
        if finding.rule.kind == Kind.ALERT_KIND_NO_DATA:
            waits_s = 0
        since_us = finding.since_us or (alert.holds_since_us if alert else now_us)
        due = now_us - since_us >= waits_s * 1_000_000
        if alert is None:
            decided.append(Step("fire" if due else "begin", finding, None, since_us))
        elif not alert.fired_at_us and due:
            decided.append(Step("fire", finding, alert, since_us))
        elif alert.summary != finding.summary:
            decided.append(Step("update", finding, alert, alert.holds_since_us))
    decided += [Step("resolve" if alert.fired_at_us else "forget", None, alert) for alert in by_key.values()]
    return decided
