"""What the registry accepts as a session rule."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from chart.common.rpc_errors import RefusalError
from chart.registry import session_rules
from chart.v1.flow_grant_pb2 import (
    SERVICE_TYPE_AVAILABLE,
    SERVICE_TYPE_GUARANTEED,
    SERVICE_TYPE_MAXIMUM,
    SERVICE_TYPE_VARIABLE,
)
from chart.v1.session_rule_pb2 import SESSION_CLASS_DATA, PortRange, SessionRule, SessionSelector

WEB = SessionSelector(protocol=6, remote_ports=PortRange(first=443, last=443))


def rule(**fields: Any) -> SessionRule:
    values = {
        "id": "web",
        "session_class": SESSION_CLASS_DATA,
        "selectors": [WEB],
        "service": SERVICE_TYPE_AVAILABLE,
        "available_bps": 10_000_000,
        **fields,
    }
    return SessionRule(**values)


@pytest.mark.parametrize("built_in", session_rules.BUILT_IN, ids=lambda one: one.id)
def test_built_in_rules_are_acceptable_and_wait_to_be_enabled(built_in: SessionRule) -> None:
    assert session_rules.session_rule(built_in) == built_in
    assert not built_in.enabled
    refusal = session_rules.built_in_stays(built_in.id)
    assert refusal is not None
    assert refusal.status is grpc.StatusCode.FAILED_PRECONDITION
    assert session_rules.built_in_stays("web") is None


def test_a_rule_is_stored_normalised_and_without_revision() -> None:
    selector = SessionSelector(local_prefix="10.1.2.3/8", remote_prefix="10.9.0.1", remote_ports=PortRange())
    stored = session_rules.session_rule(rule(selectors=[selector], revision=4, built_in=True))
    assert (stored.selectors[0].local_prefix, stored.selectors[0].remote_prefix) == ("10.0.0.0/8", "10.9.0.1/32")
    assert not stored.selectors[0].HasField("remote_ports")
    assert (stored.revision, stored.built_in) == (0, False)


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"id": "Web"}, "id"),
        ({"name": "x" * 1001}, "name"),
        ({"session_class": 0}, "session_class"),
        ({"selectors": []}, "selectors"),
        ({"selectors": [WEB] * 17}, "selectors"),
        ({"selectors": [WEB, SessionSelector()]}, "selectors[1]"),
        ({"selectors": [SessionSelector(protocol=1)]}, "selectors[0].protocol"),
        ({"selectors": [SessionSelector(dscp_plus_one=65)]}, "selectors[0].dscp"),
        ({"selectors": [SessionSelector(local_ports=PortRange(first=9, last=5))]}, "selectors[0].local_ports"),
        ({"selectors": [SessionSelector(remote_ports=PortRange(last=70_000))]}, "selectors[0].remote_ports"),
        ({"selectors": [SessionSelector(local_prefix="ten")]}, "selectors[0].local_prefix"),
        (
            {"selectors": [SessionSelector(local_prefix="10.0.0.0/8", remote_prefix="fd00::/8")]},
            "selectors[0].remote_prefix",
        ),
        ({"service": 0}, "service"),
        ({"guaranteed_bps": 1000}, "guaranteed_bps"),
        ({"available_bps": 999}, "available_bps"),
        ({"service": SERVICE_TYPE_GUARANTEED}, "guaranteed_bps"),
        ({"service": SERVICE_TYPE_GUARANTEED, "guaranteed_bps": 5000}, "available_bps"),
        ({"service": SERVICE_TYPE_MAXIMUM, "guaranteed_bps": 5000}, "guaranteed_bps"),
        ({"service": SERVICE_TYPE_VARIABLE, "guaranteed_bps": 10**14}, "guaranteed_bps"),
        ({"delay_class": 8}, "delay_class"),
        ({"preemption_priority": 256}, "preemption_priority"),
        ({"burst_tolerance": 16}, "burst_tolerance"),
        ({"nodes": ["alpha", "Bravo"]}, "nodes[1]"),
        ({"nodes": ["alpha", "alpha"]}, "nodes"),
        ({"node_tags": {"": "x"}}, "node_tags."),
    ],
)
def test_a_wrong_rule_is_refused_by_field(fields: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(RefusalError) as caught:
        session_rules.session_rule(rule(**fields))
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.refusal.field == at_fault
