"""Tenants: the ends of flows that applications may ask for, and whose tokens these are (decision 31). Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from chart.common.names import is_label
from chart.common.rpc_errors import RefusalError, invalid
from chart.registry.service import MAX_TEXT, check_label, check_node
from chart.v1 import reservations_pb2
from chart.v1.tenant_pb2 import Tenant, TenantEnd

DEFAULT_TENANT_ID = "default"
MAX_ENDS = 1000
MAX_MEMBERS = 1000
MAX_MEMBER = 128
MAX_PORT = 65_535
# Protocols that have ports: TCP, UDP, DCCP, SCTP.
PORT_PROTOCOLS = (6, 17, 33, 132)


def tenant(stated: Tenant) -> Tenant:
    """A tenant in its stored form, without its revision.

    Raises:
        RefusalError: names the field.
    """
    check_label("id", stated.id)
    if len(stated.description) > MAX_TEXT:
        raise invalid("description", f"must be at most {MAX_TEXT} characters, has {len(stated.description)}")
    stored = Tenant()
    stored.CopyFrom(stated)
    stored.revision = 0
    if len(stated.ends) > MAX_ENDS:
        raise invalid("ends", f"must be at most {MAX_ENDS}, are {len(stated.ends)}")
    for index, end in enumerate(stored.ends):
        _normalise(end, f"ends[{index}]")
    if stated.id == DEFAULT_TENANT_ID and (stated.members or stated.namespaces):
        raise invalid("members", "the tenant default has no members: who belongs to no other belongs to it")
    for field, values, most, good in (
        ("members", stated.members, MAX_MEMBERS, lambda one: 0 < len(one) <= MAX_MEMBER and one.isprintable()),
        ("namespaces", stated.namespaces, MAX_MEMBERS, is_label),
    ):
        if len(values) > most:
            raise invalid(field, f"must be at most {most}, are {len(values)}")
        for index, value in enumerate(values):
            if not good(value):
                words = "a subject or client id of 1 to 128 characters" if field == "members" else "a DNS label"
                raise invalid(f"{field}[{index}]", f"{value[:MAX_MEMBER]!r} is not {words}")
    return stored


def members_apart(stated: Tenant, every: Iterable[Tenant]) -> None:
    """Refuse members and namespaces that another tenant has.

    Raises:
        RefusalError: names the field.
    """
    for other in every:
        if other.id == stated.id:
            continue
        for field in ("members", "namespaces"):
            both = set(getattr(stated, field)) & set(getattr(other, field))
            if both:
                first = min(both)
                raise RefusalError(
                    reservations_pb2.Refusal(
                        code="member-of-another",
                        detail=f"{first!r} belongs to the tenant {other.id!r} already, and may belong to one only",
                        field=field,
                        suggestions=[f"take it out of {other.id} first"],
                    )
                )


def check_deletion(identity: str) -> None:
    """Refuse to delete the tenant of all who belong to no other.

    Raises:
        RefusalError: INVALID_ARGUMENT.
    """
    if identity == DEFAULT_TENANT_ID:
        raise invalid("id", "the tenant default cannot be deleted", "state it without ends: nothing belongs to it then")


def default_tenant(*, everything: bool) -> Tenant:
    """The tenant of who belongs to no other; it owns everything, or nothing."""
    ends = [TenantEnd(prefix="0.0.0.0/0"), TenantEnd(prefix="::/0")] if everything else []
    return Tenant(id=DEFAULT_TENANT_ID, description="Applications that belong to no other tenant.", ends=ends)


def _normalise(end: TenantEnd, place: str) -> None:
    """Bring an end to its stored form, in place."""
    if not end.node and not end.prefix:
        raise invalid(place, "must name a node or a prefix", "node=alpha", "prefix=10.1.0.0/16")
    if end.node:
        check_node(f"{place}.node", end.node)
    if end.prefix:
        try:
            end.prefix = str(ipaddress.ip_network(end.prefix, strict=False))
        except ValueError:
            words = f"{end.prefix!r} is not a prefix in CIDR notation, for example 10.1.0.0/16"
            raise invalid(f"{place}.prefix", words) from None
    if end.cgroup_id and not end.node:
        raise invalid(f"{place}.node", "a control group is of a node: name the node")
    if end.protocol > 255:
        raise invalid(f"{place}.protocol", f"{end.protocol} is not an IP protocol number", "tcp", "udp")
    first, last = end.ports.first, end.ports.last
    if not (first or last):
        end.ClearField("ports")
    elif not 0 < first <= last <= MAX_PORT:
        raise invalid(f"{place}.ports", f"must be ports from 1 to {MAX_PORT}, the first before the last", "8000-8099")
    elif end.protocol and end.protocol not in PORT_PROTOCOLS:
        raise invalid(f"{place}.protocol", f"protocol {end.protocol} has no ports", "tcp", "udp")
