"""Tenants between the interface definitions (protobuf) and the REST shapes. Pure."""

from __future__ import annotations

from chart.gateway.schemas.tenants import Tenant, TenantBody, TenantEnd, TenantEndBody
from chart.v1 import session_rule_pb2, tenant_pb2

_NUMBERS = {"tcp": 6, "udp": 17, "dccp": 33, "sctp": 132}
_NAMES = {number: name for name, number in _NUMBERS.items()}


def tenant_message(tenant_id: str, body: TenantBody) -> tenant_pb2.Tenant:
    """What the registry stores."""
    return tenant_pb2.Tenant(
        id=tenant_id,
        description=body.description,
        ends=[_end_message(end) for end in body.ends],
        members=body.members,
        namespaces=body.namespaces,
    )


def tenant(message: tenant_pb2.Tenant) -> Tenant:
    """A tenant as REST shows it."""
    return Tenant(
        id=message.id,
        revision=message.revision,
        description=message.description,
        members=list(message.members),
        namespaces=list(message.namespaces),
        ends=[_end(end) for end in message.ends],
    )


def _end_message(body: TenantEndBody) -> tenant_pb2.TenantEnd:
    first, _, last = (body.ports or "0").partition("-")
    return tenant_pb2.TenantEnd(
        node=body.node or "",
        prefix=body.prefix or "",
        protocol=_NUMBERS[body.protocol] if body.protocol else 0,
        ports=session_rule_pb2.PortRange(first=int(first), last=int(last or first)),
        cgroup_id=body.cgroup_id or 0,
    )


def _end(end: tenant_pb2.TenantEnd) -> TenantEnd:
    first, last = end.ports.first, end.ports.last
    return TenantEnd(
        node=end.node or None,
        prefix=end.prefix or None,
        protocol=_NAMES.get(end.protocol, str(end.protocol)) if end.protocol else None,
        ports=None if not last else str(first) if first == last else f"{first}-{last}",
        cgroup_id=end.cgroup_id or None,
    )
