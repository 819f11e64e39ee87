"""Records of the streams as rows of tables. Pure."""

from __future__ import annotations

import json
import math
from typing import Any

from google.protobuf.json_format import MessageToDict

from chart.archiver.overlay_repository import CLASS_PREFIX, KIND_PREFIX, packed
from chart.common.records import Record
from chart.v1 import (
    audit_pb2,
    estimate_pb2,
    flow_grant_pb2,
    grant_status_pb2,
    link_rate_pb2,
    measurement_pb2,
    node_state_pb2,
    path_table_pb2,
)

MEASUREMENT = "chart.measurement.v1"
ESTIMATE = "chart.estimate.v1"
LINK_RATE = "chart.link-rate.v1"
GRANT_STATUS = "chart.grant-status.v1"
FLOW_GRANT = "chart.flow-grant.v1"
AUDIT = "chart.audit.v1"
LINK_LOAD = "chart.link-load.v1"

NODE_STATE = "chart.node-state.v1"
PATH_TABLE = "chart.path-table.v1"

FACTS = (MEASUREMENT, ESTIMATE, LINK_RATE, GRANT_STATUS, FLOW_GRANT, AUDIT)
OVERLAY = (NODE_STATE, PATH_TABLE)

# (table, row); times are integers in microseconds under names that end in _us.
Row = tuple[str, dict[str, Any]]
_INT64 = 2**63 - 1


class UnarchivableError(ValueError):
    """A record that no table can hold; the words say why."""


def rows_of(record: Record) -> list[Row]:
    """What a record becomes.

    Raises:
        UnarchivableError: a field that identifies it is missing, or its time is none.
    """
    value = record.value
    if isinstance(value, measurement_pb2.Measurement):
        return [("measurement", _measurement(value))]
    if isinstance(value, estimate_pb2.Estimate):
        return [("estimate", _estimate(value))]
    if isinstance(value, link_rate_pb2.LinkRates):
        return [("link_rate", _link_rate(value, rate)) for rate in value.links]
    if isinstance(value, grant_status_pb2.GrantStatus):
        return [("grant_status", _grant_status(record, value))]
    if isinstance(value, audit_pb2.AuditRecord):
        return [("audit", _audit(value))]
    if record.topic == FLOW_GRANT and (value is None or isinstance(value, flow_grant_pb2.FlowGrant)):
        return [("flow_grant", _flow_grant(record, value))]
    if isinstance(value, node_state_pb2.NodeState):
        return [("overlay_event", _overlay_event(value, event)) for event in value.overlay.events]
    if record.topic == PATH_TABLE and (value is None or isinstance(value, path_table_pb2.PathTable)):
        return [("path_table", _path_table(record, value))]
    if record.topic == ESTIMATE and value is None:
        return [("estimate_gone", _estimate_gone(record))]
    return []  # a tombstone of another compacted stream: history stays


def _text(value: str) -> str:
    """PostgreSQL's text holds everything but NUL."""
    return value.replace("\0", "�")


def _name(value: str, field: str) -> str:
    if not value:
        msg = f"{field} is empty"
        raise UnarchivableError(msg)
    return _text(value)


def _time(value_us: int, field: str) -> int:
    # Beyond the year 2100 it is no time but garbage; PostgreSQL would refuse it later.
    if not 0 < value_us < 4_102_444_800_000_000:
        msg = f"{field} is {value_us}, not a time in microseconds"
        raise UnarchivableError(msg)
    return value_us


def _value(enum: Any, value: int, prefix: str) -> str:
    """A value of an enumeration without its prefix; the number of one that only a later version knows."""
    return enum.Name(value).removeprefix(prefix) if value in enum.values() else str(value)


def _number(value: float) -> float:
    if not math.isfinite(value):
        msg = f"{value} is not a finite number"
        raise UnarchivableError(msg)
    return value


def _measurement(value: measurement_pb2.Measurement) -> dict[str, Any]:
    return {
        "id": _name(value.id, "id"),
        "measured_at_us": _time(value.measured_at_us, "measured_at_us"),
        "source": _name(value.source_node, "source_node"),
        "destination": _name(value.destination_node, "destination_node"),
        "sensor": _text(value.sensor),
        "metric": _name(value.metric, "metric"),
        "value": _number(value.value),
        "unit": _text(value.unit),
        "probes_sent": value.probes_sent,
        "probes_lost": value.probes_lost,
        "probe_bytes": min(value.probe_bytes, _INT64),
        "configuration_ids": [_text(identity) for identity in value.configuration_ids],
        "error": _text(value.error),
    }


def _estimate(value: estimate_pb2.Estimate) -> dict[str, Any]:
    return {
        "source": _name(value.source_node, "source_node"),
        "destination": _name(value.destination_node, "destination_node"),
        "metric": _name(value.metric, "metric"),
        "estimated_at_us": _time(value.estimated_at_us, "estimated_at_us"),
        "value": _number(value.value),
        "unit": _text(value.unit),
        "method": _text(value.method),
        "interval_low": _number(value.interval_low),
        "interval_high": _number(value.interval_high),
    }


def _estimate_gone(record: Record) -> dict[str, Any]:
    """A pair of which nothing is estimated any more; its history stays."""
    source, destination, metric = (*record.key.split(","), "", "", "")[:3]
    return {
        "source": _name(source, "key"),
        "destination": _name(destination, "key"),
        "metric": _name(metric, "key"),
        "estimated_at_us": _time(record.timestamp_us, "timestamp"),
    }


def _link_rate(value: link_rate_pb2.LinkRates, rate: link_rate_pb2.LinkRate) -> dict[str, Any]:
    return {
        "link_id": _name(rate.link_id, "link_id"),
        "issued_at_us": _time(value.issued_at_us, "issued_at_us"),
        "valid_until_us": _time(value.valid_until_us, "valid_until_us"),
        "generation": value.generation,
        "available_bps": float(rate.available_bps),
        "explicit_rate_capacity_bps": float(rate.explicit_rate_capacity_bps),
        "legacy_share_bps": float(rate.legacy_share_bps),
        "active_flows": rate.active_users,
        "controller": _text(value.controller),
    }


def _grant_status(record: Record, value: grant_status_pb2.GrantStatus) -> dict[str, Any]:
    return {
        "request_id": _name(value.request_id, "request_id"),
        "node": _name(value.node, "node"),
        "at_us": _time(record.timestamp_us, "timestamp"),
        "stream_offset": record.offset,
        "generation": value.generation,
        "state": _value(grant_status_pb2.GrantState, value.state, "GRANT_STATE_"),
        "reason": _text(value.reason),
        "applied_at_us": value.applied_at_us if 0 < value.applied_at_us < 4_102_444_800_000_000 else None,
        "kernel_rate_bps": float(value.kernel_rate_bps),
        "matching_flows": value.matching_flows,
        "sent_bytes": value.sent_bytes,
        "delivered_bytes": value.delivered_bytes,
    }


def _flow_grant(record: Record, value: flow_grant_pb2.FlowGrant | None) -> dict[str, Any]:
    body = MessageToDict(value, preserving_proto_field_name=True) if value is not None else {}
    return {
        "request_id": _name(record.key, "key"),
        "at_us": _time(record.timestamp_us, "timestamp"),
        "stream_offset": record.offset,
        "released": value is None,
        "generation": value.generation if value is not None else 0,
        "guaranteed_bps": float(value.guaranteed_bps) if value is not None else 0.0,
        "valid_until_us": value.valid_until_us or None if value is not None else None,
        "link_ids": [_text(link) for link in value.link_ids] if value is not None else [],
        "body": json.dumps(body).replace("\\u0000", "\\ufffd"),
    }


def _audit(value: audit_pb2.AuditRecord) -> dict[str, Any]:
    try:
        detail = json.loads(value.detail_json or "{}")
    except ValueError:
        detail = {"text": value.detail_json}
    return {
        "id": _name(value.id, "id"),
        "at_us": _time(value.at_us, "at_us"),
        "service": _text(value.service),
        "actor": _text(value.actor),
        "action": _text(value.action),
        "subject": _text(value.subject),
        "detail": json.dumps(detail).replace("\\u0000", "\\ufffd"),
        "trace_id": _text(value.trace_id),
    }


def _overlay_event(state: node_state_pb2.NodeState, event: node_state_pb2.OverlayEvent) -> dict[str, Any]:
    return {
        "node": _name(state.node, "node"),
        "agent_instance": _text(state.agent_instance),
        "sequence": event.sequence,
        "at_us": _time(event.at_us, "at_us"),
        "kind": _value(node_state_pb2.OverlayEventKind, event.kind, KIND_PREFIX),
        "link_id": _text(event.link_id),
        "owner": _text(event.owner),
        "colour": event.colour,
        "flow_classes": [_value(node_state_pb2.OverlayClass, one, CLASS_PREFIX) for one in event.flow_classes],
        "rtt_ms": event.rtt_us / 1000,
        "exchange_loss": _number(event.exchange_loss),
        "interface_down": event.interface_down,
    }


def _path_table(record: Record, value: path_table_pb2.PathTable | None) -> dict[str, Any]:
    """Without content the node has no part in the overlay any more."""
    return {
        "node": _name(record.key, "key"),
        "at_us": _time(record.timestamp_us, "timestamp"),
        "stream_offset": record.offset,
        "generation": value.generation if value else 0,
        "content": packed(value) if value and value.links else b"",
    }
