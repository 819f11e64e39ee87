"""Tunnel ends and proxied traffic between the interface definitions (protobuf) and the REST shapes. Pure."""

from __future__ import annotations

from typing import cast

from chart.gateway.schemas import ends
from chart.v1 import topology_pb2

_ROLES = {
    "origin": topology_pb2.TUNNEL_ROLE_ORIGIN,
    "destination": topology_pb2.TUNNEL_ROLE_DESTINATION,
}
_MODES = {"same-ports": topology_pb2.PROXY_MODE_SAME_PORTS, "new-ports": topology_pb2.PROXY_MODE_NEW_PORTS}
_ROLE_NAMES = {number: name for name, number in _ROLES.items()}
_MODE_NAMES = {number: name for name, number in _MODES.items()}


def end_message(end: ends.TunnelEnd) -> topology_pb2.TunnelEnd:
    """What the registry stores of an end."""
    return topology_pb2.TunnelEnd(
        tunnel=end.tunnel,
        role=_ROLES[end.role],
        interface=end.interface,
        address=end.address,
        port=end.port,
        peer_node=end.peer_node,
        classes=[
            topology_pb2.TunnelEndClass(name=one.name, weight=one.weight, selector=one.selector) for one in end.classes
        ],
        period_ms=end.period_ms or 0,
        congestion=end.congestion or "",
        prefixes=end.prefixes,
        applications=[
            topology_pb2.TunnelEndApplication(
                name=one.name, file=one.file, argument=one.argument, limit_ms=one.limit_ms, off=not one.on
            )
            for one in end.applications
        ],
    )


def end(message: topology_pb2.TunnelEnd) -> ends.TunnelEnd:
    """An end as the registry has it."""
    return ends.TunnelEnd(
        tunnel=message.tunnel,
        role=cast(ends.TunnelRole, _ROLE_NAMES.get(message.role, "destination")),
        interface=message.interface,
        address=message.address,
        port=message.port,
        peer_node=message.peer_node,
        classes=[
            ends.TunnelEndClass(name=one.name, weight=one.weight, selector=one.selector) for one in message.classes
        ],
        period_ms=message.period_ms or None,
        congestion=cast(ends.Congestion, message.congestion) if message.congestion else None,
        prefixes=list(message.prefixes),
        applications=[
            ends.TunnelEndApplication(
                name=one.name, file=one.file, argument=one.argument, limit_ms=one.limit_ms, on=not one.off
            )
            for one in message.applications
        ],
    )


def proxied_message(proxied: ends.ProxiedTraffic | None) -> topology_pb2.ProxiedTraffic | None:
    """What the registry stores of a node's proxied traffic; None: nothing is proxied."""
    if proxied is None:
        return None
    return topology_pb2.ProxiedTraffic(
        interfaces=proxied.interfaces, prefixes=proxied.prefixes, mode=_MODES[proxied.mode]
    )


def proxied(message: topology_pb2.ProxiedTraffic) -> ends.ProxiedTraffic:
    """A node's proxied traffic as the registry has it; unset: without interfaces."""
    return ends.ProxiedTraffic(
        interfaces=list(message.interfaces),
        prefixes=list(message.prefixes),
        mode=cast(ends.ProxyMode, _MODE_NAMES.get(message.mode, "same-ports")),
    )
