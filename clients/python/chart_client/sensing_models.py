"""Answers of the gateway about sensing: runs, reports of sensor pods, estimates, roll-ups, snapshots, alerts."""

from __future__ import annotations

from datetime import datetime

from chart_client.models import Model


class RunResult(Model):
    """One metric of a single run."""

    metric: str
    value: float
    unit: str
    measured_at: datetime
    error: str = ""


class LinkBudget(Model):
    """Probing budget of a link, bytes per minute, and the bytes sent in the last minute."""

    link: str
    capacity_bps: int
    limit_bytes: int
    used_bytes: int


class SkippedRun(Model):
    """A skipped run and its reason."""

    at: datetime
    group: str
    reason: str
    detail: str
    count: int


class SensingReport(Model):
    """What a sensor pod measures, merges, delays and skips."""

    node: str
    configurations: int
    groups: int
    started_runs: int
    merged_runs: int
    answered_from_store: int
    skipped_runs: dict[str, int]
    delayed_runs: dict[str, int]
    start_lateness_p99_us: int
    links: list[LinkBudget]
    skips: list[SkippedRun]


class Estimate(Model):
    """An estimate of a pair's metric with a 90 % prediction interval."""

    source_node: str
    destination_node: str
    metric: str
    value: float
    unit: str
    method: str
    interval_low: float
    interval_high: float
    estimated_at: datetime
    age_s: float


class NextPair(Model):
    """A pair that should be measured."""

    source_node: str
    destination_node: str
    metric: str
    reason: str
    relative_width: float


class RankedNode(Model):
    """A node at its place in a ranking; may_be_best: its interval reaches that of the first."""

    node: str
    value: float
    interval_low: float
    interval_high: float
    method: str
    age_s: float
    may_be_best: bool


class RankedNodes(Model):
    """Nodes, the best first; unknown: stated candidates of which nothing is known."""

    metric: str
    unit: str
    items: list[RankedNode]
    unknown: list[str]


class RankedRelays(RankedNodes):
    """Relays, the best first, and the path without one (its node is empty)."""

    direct: RankedNode | None


class RollUp(Model):
    """One minute or hour of a path."""

    at: datetime
    count: int
    failed: int
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    loss_ratio: float | None = None


class Baseline(Model):
    """Baseline of a path since its last change."""

    source_node: str
    destination_node: str
    metric: str
    unit: str
    median: float
    spread: float
    minutes: int
    since: datetime


class PathChange(Model):
    """A lasting change of a path's level."""

    source_node: str
    destination_node: str
    metric: str
    unit: str
    at: datetime
    before: float
    after: float


class Snapshot(Model):
    """All pairs at one time."""

    id: str
    taken_at: datetime
    reason: str
    metrics: list[str]
    nodes: int
    rows: int


class SnapshotRow(Model):
    """One pair's metric in a snapshot."""

    source_node: str
    destination_node: str
    metric: str
    value: float
    unit: str
    method: str
    interval_low: float | None = None
    interval_high: float | None = None
    at: datetime


class AlertRule(Model):
    """An alert rule."""

    id: str
    revision: int
    kind: str
    metric: str
    source_node: str | None = None
    destination_node: str | None = None
    statistic: str | None = None
    threshold: float
    for_s: int
    description: str = ""


class Alert(Model):
    """An alert: a rule whose condition held for long enough on a path."""

    id: str
    rule: str
    subject: str
    summary: str
    value: float
    threshold: float
    fired_at: datetime
    resolved_at: datetime | None = None
