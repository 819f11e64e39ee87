"""Session rules between the interface definitions (protobuf) and the REST shapes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from chart.gateway.mapping import suffix
from chart.gateway.schemas.session_rules import (
    NodeSessionRule,
    SessionRule,
    SessionRuleBody,
    SessionSelector,
    SessionSelectorBody,
)
from chart.v1 import flow_grant_pb2, node_state_pb2, session_rule_pb2

_PROTOCOLS = {None: 0, "tcp": 6, "udp": 17}
_PROTOCOL_NAMES = {number: name for name, number in _PROTOCOLS.items()}
# As elements decide it (docs/signalling.md, "Queues"): delay priority 128, a bucket of one round trip at most.
_EXPEDITED_DELAY_CLASS = 4
_EXPEDITED_BURST_TOLERANCE = 3


def is_expedited(rule: session_rule_pb2.SessionRule) -> bool:
    """Whether elements let the sessions of a rule go before others."""
    return (
        rule.guaranteed_bps > 0
        and rule.delay_class >= _EXPEDITED_DELAY_CLASS
        and rule.burst_tolerance <= _EXPEDITED_BURST_TOLERANCE
    )


def rule_message(rule_id: str, body: SessionRuleBody) -> session_rule_pb2.SessionRule:
    """What the registry stores."""
    return session_rule_pb2.SessionRule(
        id=rule_id,
        name=body.name,
        session_class=session_rule_pb2.SessionClass.Value(f"SESSION_CLASS_{body.session_class.upper()}"),
        selectors=[_selector_message(selector) for selector in body.selectors],
        service=flow_grant_pb2.ServiceType.Value(f"SERVICE_TYPE_{body.service.upper()}"),
        guaranteed_bps=body.guaranteed_bps,
        available_bps=body.available_bps,
        delay_class=body.delay_class,
        preemption_priority=body.priority,
        burst_tolerance=body.burst_tolerance,
        nodes=body.nodes,
        node_tags=body.node_tags,
        enabled=body.enabled,
        authorised=body.authorised,
    )


def rule(message: session_rule_pb2.SessionRule, states: Iterable[node_state_pb2.NodeState]) -> SessionRule:
    """A rule with its revision and what nodes report of it in their current states."""
    reported = [
        NodeSessionRule(
            node=state.node,
            current=one.revision == message.revision,
            asks=one.asks,
            fault=one.fault,
            sessions=one.sessions,
            expedited_sessions=one.expedited_sessions,
            guaranteed_bps=one.guaranteed_bps,
        )
        for state in states
        for one in state.session_rules
        if one.rule_id == message.id
    ]
    return SessionRule(
        id=message.id,
        revision=message.revision,
        name=message.name,
        session_class=cast(Any, _word(session_rule_pb2.SessionClass, message.session_class, "SESSION_CLASS_", "DATA")),
        selectors=[_selector(selector) for selector in message.selectors],
        service=cast(Any, _word(flow_grant_pb2.ServiceType, message.service, "SERVICE_TYPE_", "AVAILABLE")),
        guaranteed_bps=message.guaranteed_bps,
        available_bps=message.available_bps,
        delay_class=message.delay_class,
        priority=message.preemption_priority,
        burst_tolerance=message.burst_tolerance,
        nodes=list(message.nodes),
        node_tags=dict(message.node_tags),
        enabled=message.enabled,
        authorised=message.authorised,
        built_in=message.built_in,
        expedited=is_expedited(message),
        sessions=sum(one.sessions for one in reported),
        expedited_sessions=sum(one.expedited_sessions for one in reported),
        reported_by=sorted(reported, key=lambda one: one.node),
    )


def _word(enum: object, value: int, prefix: str, default: str) -> str:
    return suffix(enum, value, prefix, default).lower()


def _range_message(ports: str | None) -> session_rule_pb2.PortRange | None:
    if ports is None:
        return None
    first, _, last = ports.partition("-")
    return session_rule_pb2.PortRange(first=int(first), last=int(last or first))


def _range(ports: session_rule_pb2.PortRange) -> str | None:
    if not ports.last:
        return None
    return str(ports.first) if ports.first == ports.last else f"{ports.first}-{ports.last}"


def _selector_message(selector: SessionSelectorBody) -> session_rule_pb2.SessionSelector:
    return session_rule_pb2.SessionSelector(
        protocol=_PROTOCOLS[selector.protocol],
        local_ports=_range_message(selector.local_ports),
        remote_ports=_range_message(selector.remote_ports),
        local_prefix=selector.local_prefix or "",
        remote_prefix=selector.remote_prefix or "",
        dscp_plus_one=0 if selector.dscp is None else selector.dscp + 1,
    )


def _selector(message: session_rule_pb2.SessionSelector) -> SessionSelector:
    return SessionSelector(
        protocol=cast(Any, _PROTOCOL_NAMES.get(message.protocol)),
        local_ports=_range(message.local_ports),
        remote_ports=_range(message.remote_ports),
        local_prefix=message.local_prefix or None,
        remote_prefix=message.remote_prefix or None,
        dscp=message.dscp_plus_one - 1 if message.dscp_plus_one else None,
    )
