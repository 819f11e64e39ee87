"""Estimates, roll-ups, baselines, snapshots, alerts, and what a pod says of itself."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from chart.gateway.schemas.common import MAX_SAFE_INTEGER, NodeId, Output, Page, Revision, SensorParameters, Timestamp
from chart.gateway.schemas.common import Input as Body

Resolution = Literal["minute", "hour"]
AlertKind = Literal["above", "below", "no_data", "change"]
Statistic = Literal["latest", "mean", "p50", "p95", "p99", "minimum", "maximum", "loss_ratio"]
FileFormat = Literal["csv", "parquet"]


class Estimate(Output):
    """Estimate of a metric of a pair."""

    source_node: str
    destination_node: str
    metric: str = Field(examples=["rtt_us"])
    value: float
    unit: str = Field(examples=["us"])
    method: str = Field(description="measured, composition, landmark, signature or factorisation.")
    interval_low: float = Field(description="Lower end of the 90 % prediction interval.")
    interval_high: float
    estimated_at: Timestamp
    age_s: float = Field(ge=0, description="Seconds since its inputs were measured or computed.")


class EstimatePage(Page):
    """Estimates by source, destination and metric."""

    items: list[Estimate]


class NextPair(Output):
    """A pair that should be measured next."""

    source_node: str
    destination_node: str
    metric: str
    reason: str = Field(description="landmark, near, unknown or uncertain.")
    relative_width: float = Field(description="Width of its interval over its estimate; 0 without an estimate.")


class NextPairs(Output):
    """Pairs to measure next, best first."""

    items: list[NextPair]


class RankedNode(Output):
    """A node at its place in a ranking."""

    node: str
    value: float = Field(description="In the metric's unit.")
    interval_low: float = Field(description="Lower end of the 90 % prediction interval; over a relay, of both hops'.")
    interval_high: float
    method: str = Field(description="measured, or the method of the estimate; over a relay, those of both hops.")
    age_s: float = Field(ge=0, description="Seconds since the older of its inputs was measured or computed.")
    may_be_best: bool = Field(description="Its interval reaches that of the first: it may be the best in truth.")


class RankedNodes(Output):
    """Nodes, the best first."""

    metric: str
    unit: str
    items: list[RankedNode]
    unknown: list[str] = Field(description="Stated candidates of which nothing is known.")


class RankedRelays(Output):
    """Relays between two nodes, the best first."""

    metric: str
    unit: str
    items: list[RankedNode]
    unknown: list[str] = Field(description="Stated candidates of which a hop is unknown.")
    direct: RankedNode | None = Field(description="The path without a relay (its node is empty); null: unknown.")


class RollUp(Output):
    """One minute or hour of a path; numbers are null where every run failed."""

    at: Timestamp = Field(description="Its start.")
    count: int = Field(description="Successful results.")
    failed: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    minimum: float | None
    maximum: float | None
    loss_ratio: float | None = Field(description="Probes lost over probes sent; null when none were counted.")


class RollUps(Output):
    """Roll-ups of one path, oldest first."""

    unit: str
    items: list[RollUp]


class Baseline(Output):
    """Baseline of a path since its last change."""

    source_node: str
    destination_node: str
    metric: str
    unit: str
    median: float
    spread: float = Field(description="1.4826 times the median absolute deviation of the minutes' medians.")
    minutes: int
    since: Timestamp
    computed_at: Timestamp


class Baselines(Output):
    """By source, destination and metric."""

    items: list[Baseline]


class PathChange(Output):
    """A lasting change of a path's level."""

    source_node: str
    destination_node: str
    metric: str
    unit: str
    at: Timestamp
    before: float
    after: float


class PathChanges(Output):
    """Newest first."""

    items: list[PathChange]


class Snapshot(Output):
    """All pairs at one time."""

    id: str
    taken_at: Timestamp
    reason: str = Field(description="schedule, or the owner of a single run.")
    metrics: list[str]
    nodes: int
    rows: int


class Snapshots(Output):
    """Newest first."""

    items: list[Snapshot]


class SnapshotRow(Output):
    """One pair's metric in a snapshot."""

    source_node: str
    destination_node: str
    metric: str
    value: float
    unit: str
    method: str = Field(description="measured, or the method of the estimate.")
    interval_low: float | None
    interval_high: float | None
    at: Timestamp


class SnapshotPage(Page):
    """A snapshot's rows by source, destination and metric."""

    snapshot: Snapshot
    items: list[SnapshotRow]


class AlertRuleBody(Body):
    """An alert rule."""

    kind: AlertKind
    metric: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])
    source_node: NodeId | None = Field(default=None, description="null: any.")
    destination_node: NodeId | None = Field(default=None, description="null: any.")
    statistic: Statistic = Field(default="p50", description="Of the last whole minute; latest: the newest result.")
    threshold: float = Field(default=0, allow_inf_nan=False, description="Of a change: the relative difference.")
    for_s: int = Field(
        default=0,
        ge=0,
        le=7 * 86_400,
        description="Seconds. above, below: the condition must hold; no_data: without data; change: the alert fires.",
    )
    description: str = Field(default="", max_length=1000)


class AlertRule(Output):
    """An alert rule with its revision."""

    id: str
    revision: Revision
    kind: AlertKind
    metric: str
    source_node: str | None
    destination_node: str | None
    statistic: str | None
    threshold: float
    for_s: int
    description: str


class AlertRules(Output):
    """By id."""

    items: list[AlertRule]


class Alert(Output):
    """A rule's condition that held long enough on a path."""

    id: str
    rule: str
    subject: str = Field(description="`<source>,<destination>,<metric>`.")
    summary: str
    value: float
    threshold: float
    fired_at: Timestamp
    resolved_at: Timestamp | None


class Alerts(Output):
    """Newest first."""

    items: list[Alert]


class RunBody(Body):
    """One run of a sensor, now; a stored or running result within the tolerance is used as well."""

    source_node: NodeId = Field(description="Node whose sensor pod runs the sensor.")
    destination_node: NodeId
    destination_address: str = Field(max_length=64, examples=["10.1.0.3"])
    sensor: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$", examples=["ping"])
    parameters: SensorParameters = Field(default_factory=dict, max_length=32, examples=[{"count": "10"}])
    tolerance_ms: int = Field(
        default=0, ge=0, le=MAX_SAFE_INTEGER, description="Use a stored result up to this age; milliseconds."
    )
    priority: int = Field(default=0, ge=0, le=255)

    @field_validator("destination_address")
    @classmethod
    def _address_reads(cls, value: str) -> str:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise PydanticCustomError("address", "must be an IP address, such as 10.1.0.3") from None
        return value


class RunResult(Output):
    """One metric of a run."""

    metric: str
    value: float
    unit: str
    measured_at: Timestamp
    error: str = Field(description="Why the run failed; empty when value is good.")


class RunResults(Output):
    """Result of a run."""

    items: list[RunResult]


class LinkBudget(Output):
    """Probing budget of a link, bytes per minute, and the bytes sent in the last minute."""

    link: str
    capacity_bps: int
    limit_bytes: int
    used_bytes: int


class SkippedRun(Output):
    """A skipped run and its reason."""

    at: Timestamp
    group: str = Field(description="Sensor, destination, address and parameters.")
    reason: str
    detail: str
    count: int


class ApplicationUse(Output):
    """Use of a sensor pod by one application."""

    application: str
    configurations: int
    used_bytes: int


class SensingReport(Output):
    """What a sensor pod measures, merges, delays and skips."""

    node: str
    configurations: int
    groups: int = Field(description="Number of different measurements after merging.")
    started_runs: int
    merged_runs: int
    answered_from_store: int
    skipped_runs: dict[str, int]
    delayed_runs: dict[str, int]
    start_lateness_p50_us: int
    start_lateness_p99_us: int
    start_lateness_max_us: int
    links: list[LinkBudget]
    skips: list[SkippedRun]
    applications: list[ApplicationUse]
