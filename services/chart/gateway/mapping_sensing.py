"""Messages of pods, inference and archiver as answers, and bodies as messages. Pure."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from pydantic import BaseModel

from chart.gateway.schemas import sensing
from chart.gateway.schemas.common import timestamp, timestamp_or_none
from chart.v1 import archive_pb2, estimate_pb2, inference_pb2, sensing_configuration_pb2, sensor_pod_pb2

_PREFIX = "ALERT_KIND_"

Made = TypeVar("Made", bound=BaseModel)


def _same(kind: type[Made], message: Message, **others: Any) -> Made:
    """An answer whose fields have the message's values of the same names; `others` are those that differ."""
    return kind(**{name: getattr(message, name) for name in kind.model_fields if name not in others}, **others)


def estimate(message: estimate_pb2.Estimate, age_us: int) -> sensing.Estimate:
    """An estimate with its age."""
    return _same(sensing.Estimate, message, estimated_at=timestamp(message.estimated_at_us), age_s=max(0, age_us) / 1e6)


def next_pair(message: inference_pb2.NextPair) -> sensing.NextPair:
    """A pair to measure."""
    return _same(sensing.NextPair, message)


def ranked_node(message: inference_pb2.RankedNode) -> sensing.RankedNode:
    """A node at its place."""
    return _same(sensing.RankedNode, message, age_s=max(0, message.age_us) / 1e6)


def ranked_nodes(metric: str, message: inference_pb2.RankNodesResponse) -> sensing.RankedNodes:
    """Nodes, the best first."""
    return sensing.RankedNodes(
        metric=metric,
        unit=message.unit,
        items=[ranked_node(one) for one in message.nodes],
        unknown=list(message.unknown),
    )


def ranked_relays(metric: str, message: inference_pb2.RankRelaysResponse) -> sensing.RankedRelays:
    """Relays, the best first, and the path without one."""
    return sensing.RankedRelays(
        metric=metric,
        unit=message.unit,
        items=[ranked_node(one) for one in message.relays],
        unknown=list(message.unknown),
        direct=ranked_node(message.direct) if message.HasField("direct") else None,
    )


def roll_ups(message: archive_pb2.QueryRollupsResponse) -> sensing.RollUps:
    """Roll-ups of a path."""
    return sensing.RollUps(
        unit=message.unit,
        items=[
            sensing.RollUp(
                at=timestamp(one.at_us),
                count=one.count,
                failed=one.failed,
                mean=one.mean if one.count else None,
                p50=one.p50 if one.count else None,
                p95=one.p95 if one.count else None,
                p99=one.p99 if one.count else None,
                minimum=one.minimum if one.count else None,
                maximum=one.maximum if one.count else None,
                loss_ratio=one.loss_ratio if one.HasField("loss_ratio") else None,
            )
            for one in message.rollups
        ],
    )


def baseline(message: archive_pb2.Baseline) -> sensing.Baseline:
    """What is usual."""
    return _same(
        sensing.Baseline, message, since=timestamp(message.since_us), computed_at=timestamp(message.computed_at_us)
    )


def path_change(message: archive_pb2.PathChange) -> sensing.PathChange:
    """A change of level."""
    return _same(sensing.PathChange, message, at=timestamp(message.at_us))


def snapshot(message: archive_pb2.Snapshot) -> sensing.Snapshot:
    """A snapshot without its rows."""
    return _same(sensing.Snapshot, message, taken_at=timestamp(message.taken_at_us), metrics=list(message.metrics))


def snapshot_row(message: archive_pb2.SnapshotRow) -> sensing.SnapshotRow:
    """One row."""
    estimated = message.HasField("interval_low")
    return _same(
        sensing.SnapshotRow,
        message,
        interval_low=message.interval_low if estimated else None,
        interval_high=message.interval_high if estimated else None,
        at=timestamp(message.at_us),
    )


def alert_rule_message(identity: str, body: sensing.AlertRuleBody) -> archive_pb2.AlertRule:
    """What the archiver stores."""
    thresholds = body.kind in ("above", "below")
    return archive_pb2.AlertRule(
        id=identity,
        kind=archive_pb2.AlertKind.Value(_PREFIX + body.kind.upper()),
        source_node=body.source_node or "",
        destination_node=body.destination_node or "",
        metric=body.metric,
        statistic=body.statistic if thresholds else "",
        threshold=body.threshold,
        for_s=body.for_s,
        description=body.description,
    )


def alert_rule(message: archive_pb2.AlertRule) -> sensing.AlertRule:
    """An alert rule with its revision."""
    kind = archive_pb2.AlertKind.Name(message.kind).removeprefix(_PREFIX).lower()
    return sensing.AlertRule(
        id=message.id,
        revision=message.revision,
        kind=cast("sensing.AlertKind", kind),
        metric=message.metric,
        source_node=message.source_node or None,
        destination_node=message.destination_node or None,
        statistic=message.statistic or None,
        threshold=message.threshold,
        for_s=message.for_s,
        description=message.description,
    )


def alert(message: archive_pb2.AlertRecord) -> sensing.Alert:
    """An alert that fired."""
    return _same(
        sensing.Alert,
        message,
        fired_at=timestamp(message.fired_at_us),
        resolved_at=timestamp_or_none(message.resolved_at_us),
    )


def run_message(body: sensing.RunBody, owner: str) -> sensor_pod_pb2.RunOnceRequest:
    """What the pod runs."""
    return sensor_pod_pb2.RunOnceRequest(
        configuration=sensing_configuration_pb2.SensingConfiguration(
            source_node=body.source_node,
            destination_node=body.destination_node,
            destination_address=body.destination_address,
            sensor=body.sensor,
            parameters=body.parameters,
            tolerance_ms=body.tolerance_ms,
            priority=body.priority,
            owner=owner,
        )
    )


def run_results(message: sensor_pod_pb2.RunOnceResponse) -> sensing.RunResults:
    """Result of a run."""
    return sensing.RunResults(
        items=[_same(sensing.RunResult, one, measured_at=timestamp(one.measured_at_us)) for one in message.measurements]
    )


def report(message: sensor_pod_pb2.ReportResponse) -> sensing.SensingReport:
    """What a pod says of itself."""
    return _same(
        sensing.SensingReport,
        message,
        skipped_runs=dict(message.skipped_runs),
        delayed_runs=dict(message.delayed_runs),
        links=[_same(sensing.LinkBudget, one, link=one.link_id) for one in message.links],
        skips=[_same(sensing.SkippedRun, one, at=timestamp(one.at_us)) for one in message.skips],
        applications=[_same(sensing.ApplicationUse, one, application=one.owner) for one in message.applications],
    )
