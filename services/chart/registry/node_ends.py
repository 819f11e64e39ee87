"""What the registry accepts as a node's tunnel ends, proxied traffic and part in the overlay: pure functions.

Guirguis et al., section 2.2 (both ends of a tunnel); Brassil et al., section 3 (proxies for hosts).
"""

from __future__ import annotations

import ipaddress
import re

from chart.common.rpc_errors import invalid
from chart.registry.service import check_label, check_node
from chart.v1 import registry_pb2
from chart.v1.topology_pb2 import (
    Node,
    OverlayMembership,
    ProxiedTraffic,
    ProxyMode,
    TunnelEnd,
    TunnelEndApplication,
    TunnelEndClass,
    TunnelRole,
)

MAX_OVERLAY_PREFIXES = 256
# As chart-tunnel and chart-proxy take them.
MAX_ENDS = 16
MAX_CLASSES = 32
MAX_PREFIXES = 64
MAX_WEIGHT = 10_000
MIN_PERIOD_MS, MAX_PERIOD_MS, DEFAULT_PERIOD_MS = 10, 60_000, 1000
MAX_PORT = 65_535
CONGESTION = ("cubic", "reno")
MAX_APPLICATIONS = 8
MAX_ARGUMENT_BYTES = 1023
DEFAULT_LIMIT_MS, MAX_LIMIT_MS = 20, 40
MAX_PROXIED_INTERFACES = 16
MAX_PROXIED_PREFIXES = 32

_INTERFACE = re.compile(r"[A-Za-z0-9_.@-]{1,15}")
_CLASS_NAME = re.compile(r"[^\s=:]{1,23}")
_APPLICATION_NAME = re.compile(r"[A-Za-z0-9_.-]{1,31}")
_APPLICATION_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.+-]{0,251}\.so")
_MAX_SELECTOR = 255
_NUMBERS = {"dscp": 63, "sport": MAX_PORT, "dport": MAX_PORT, "protocol": 255}


def store(node: Node) -> None:
    """Bring a node's tunnel ends, proxied traffic and part in the overlay to their stored form, in place.

    Raises:
        RefusalError: names the field.
    """
    if len(node.tunnel_ends) > MAX_ENDS:
        raise invalid("tunnel_ends", f"must be at most {MAX_ENDS}, are {len(node.tunnel_ends)}")
    for index, end in enumerate(node.tunnel_ends):
        at = f"tunnel_ends[{index}]"
        _store_end(end, at, node.id)
        for before in node.tunnel_ends[:index]:
            _check_apart(before, end, at)
    if node.HasField("proxied_traffic"):
        _store_proxied(node.proxied_traffic)
        if not node.proxied_traffic.interfaces:
            node.ClearField("proxied_traffic")
    if node.HasField("overlay"):
        _store_overlay(node.overlay)


def _store_overlay(stated: OverlayMembership) -> None:
    if len(stated.prefixes) > MAX_OVERLAY_PREFIXES:
        raise invalid("overlay.prefixes", f"must be at most {MAX_OVERLAY_PREFIXES}, are {len(stated.prefixes)}")
    for index, prefix in enumerate(stated.prefixes):
        try:
            stated.prefixes[index] = str(ipaddress.ip_network(prefix))
        except ValueError as error:
            message = f"{prefix!r} is not a network in CIDR notation: {error}"
            raise invalid(f"overlay.prefixes[{index}]", message) from None
    if len(set(stated.prefixes)) != len(stated.prefixes):
        raise invalid("overlay.prefixes", "a prefix is listed twice")


def keep_unsaid(node: Node, before: Node, request: registry_pb2.PutNodeRequest) -> Node:
    """The node with what its request does not say as it was before."""
    kept = Node()
    kept.CopyFrom(node)
    if request.keep_edges:
        del kept.edges[:]
        kept.edges.extend(before.edges)
    if request.keep_tunnel_ends:
        del kept.tunnel_ends[:]
        kept.tunnel_ends.extend(before.tunnel_ends)
    if request.keep_overlay:
        kept.ClearField("overlay")
        if before.HasField("overlay"):
            kept.overlay.CopyFrom(before.overlay)
    if request.keep_proxied_traffic:
        kept.ClearField("proxied_traffic")
        if before.HasField("proxied_traffic"):
            kept.proxied_traffic.CopyFrom(before.proxied_traffic)
    return kept


def _store_end(end: TunnelEnd, at: str, node: str) -> None:
    check_label(f"{at}.tunnel", end.tunnel)
    if end.role not in (TunnelRole.TUNNEL_ROLE_ORIGIN, TunnelRole.TUNNEL_ROLE_DESTINATION):
        raise invalid(f"{at}.role", "must be origin or destination", "origin", "destination")
    if not _INTERFACE.fullmatch(end.interface):
        words = f"{end.interface!r} is not the name of a device: 1 to 15 letters, digits and _ . @ -"
        raise invalid(f"{at}.interface", words, "chart-itm0")
    try:
        end.address = str(ipaddress.ip_address(end.address))
    except ValueError:
        words = f"{end.address!r} is not the address of the destination, for example 10.0.0.6"
        raise invalid(f"{at}.address", words) from None
    if not 0 < end.port <= MAX_PORT:
        raise invalid(f"{at}.port", f"must be between 1 and {MAX_PORT}, is {end.port}")
    check_node(f"{at}.peer_node", end.peer_node)
    if end.peer_node == node:
        raise invalid(f"{at}.peer_node", "must be another node: a tunnel has its ends on two")
    _store_applications(end, f"{at}.applications")
    if end.role == TunnelRole.TUNNEL_ROLE_ORIGIN:
        _store_origin(end, at)
        return
    for name in ("classes", "period_ms", "congestion", "prefixes"):
        if getattr(end, name):
            raise invalid(f"{at}.{name}", "is stated at the origin of a tunnel, not at its destination")


def _store_origin(end: TunnelEnd, at: str) -> None:
    end.period_ms = end.period_ms or DEFAULT_PERIOD_MS
    if not MIN_PERIOD_MS <= end.period_ms <= MAX_PERIOD_MS:
        words = f"must be between {MIN_PERIOD_MS} and {MAX_PERIOD_MS} ms, is {end.period_ms}"
        raise invalid(f"{at}.period_ms", words)
    end.congestion = end.congestion or CONGESTION[0]
    if end.congestion not in CONGESTION:
        raise invalid(f"{at}.congestion", f"must be cubic or reno, is {end.congestion!r}", *CONGESTION)
    if len(end.classes) > MAX_CLASSES:
        raise invalid(f"{at}.classes", f"must be at most {MAX_CLASSES}, are {len(end.classes)}")
    for index, one in enumerate(end.classes):
        _check_class(one, f"{at}.classes[{index}]")
        if any(before.name == one.name for before in end.classes[:index]):
            raise invalid(f"{at}.classes[{index}].name", f"{one.name!r} is listed twice")
    _store_prefixes(end.prefixes, f"{at}.prefixes", MAX_PREFIXES)
    for index, prefix in enumerate(end.prefixes):
        if ipaddress.ip_address(end.address) in ipaddress.ip_network(prefix):
            words = f"{prefix} holds the destination's own address: the tunnel would lead into itself"
            raise invalid(f"{at}.prefixes[{index}]", words)


def _store_applications(end: TunnelEnd, at: str) -> None:
    if len(end.applications) > MAX_APPLICATIONS:
        raise invalid(at, f"must be at most {MAX_APPLICATIONS}, are {len(end.applications)}")
    for index, one in enumerate(end.applications):
        _store_application(one, f"{at}[{index}]")
        if any(before.name == one.name for before in end.applications[:index]):
            raise invalid(f"{at}[{index}].name", f"{one.name!r} is listed twice")


def _store_application(stated: TunnelEndApplication, at: str) -> None:
    if not _APPLICATION_NAME.fullmatch(stated.name):
        raise invalid(f"{at}.name", "must be 1 to 31 letters, digits and _ . -", "pacing")
    if not _APPLICATION_FILE.fullmatch(stated.file):
        words = f"{stated.file!r} must be a shared object in the node's directory of applications, without a folder"
        raise invalid(f"{at}.file", words, "aimd.so")
    if len(stated.argument.encode()) > MAX_ARGUMENT_BYTES or "\0" in stated.argument:
        raise invalid(f"{at}.argument", f"must be at most {MAX_ARGUMENT_BYTES} bytes without a zero")
    stated.limit_ms = stated.limit_ms or DEFAULT_LIMIT_MS
    if stated.limit_ms > MAX_LIMIT_MS:
        raise invalid(f"{at}.limit_ms", f"must be between 1 and {MAX_LIMIT_MS} ms, is {stated.limit_ms}")


def _check_apart(before: TunnelEnd, end: TunnelEnd, at: str) -> None:
    """Two ends of one node share neither name nor device nor port nor network."""
    if before.tunnel == end.tunnel:
        raise invalid(f"{at}.tunnel", f"tunnel {end.tunnel!r} has an end on this node already")
    if before.interface == end.interface:
        raise invalid(f"{at}.interface", f"{end.interface} is the device of tunnel {before.tunnel!r}")
    listening = TunnelRole.TUNNEL_ROLE_DESTINATION
    if before.role == end.role == listening and (before.address, before.port) == (end.address, end.port):
        raise invalid(f"{at}.port", f"{end.address} port {end.port} is that of tunnel {before.tunnel!r}")
    shared = sorted(set(before.prefixes) & set(end.prefixes))
    if shared:
        raise invalid(f"{at}.prefixes", f"{shared[0]} is led into tunnel {before.tunnel!r}")


def _check_class(stated: TunnelEndClass, at: str) -> None:
    if not _CLASS_NAME.fullmatch(stated.name):
        raise invalid(f"{at}.name", "must be 1 to 23 characters without space, = or :")
    if not 1 <= stated.weight <= MAX_WEIGHT:
        raise invalid(f"{at}.weight", f"must be between 1 and {MAX_WEIGHT}, is {stated.weight}")
    if not _is_selector(stated.selector):
        words = f"{stated.selector!r} must be any, or from=PREFIX,to=PREFIX,dscp=N,protocol=tcp|udp|N,sport=N,dport=N"
        raise invalid(f"{at}.selector", words, "any", "from=10.1.0.0/16")


def _is_selector(text: str) -> bool:
    if text == "any":
        return True
    return 0 < len(text) <= _MAX_SELECTOR and all(_is_member(*one.partition("=")) for one in text.split(","))


def _is_member(name: str, _equals: str, value: str) -> bool:
    if name in ("from", "to"):
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError:
            return False
        return True
    if name == "protocol" and value in ("tcp", "udp"):
        return True
    return name in _NUMBERS and value.isascii() and value.isdecimal() and int(value) <= _NUMBERS[name]


def _store_prefixes(prefixes: object, at: str, most: int) -> None:
    """Check networks and write them without host bits, in place."""
    stated: list[str] = list(prefixes)  # type: ignore[call-overload]  # a repeated field
    if len(stated) > most:
        raise invalid(at, f"must be at most {most}, are {len(stated)}")
    for index, prefix in enumerate(stated):
        try:
            prefixes[index] = str(ipaddress.ip_network(prefix, strict=False))  # type: ignore[index]
        except ValueError:
            raise invalid(f"{at}[{index}]", f"{prefix!r} is no network, for example 192.0.2.0/24") from None


def _store_proxied(proxied: ProxiedTraffic) -> None:
    at = "proxied_traffic"
    if len(proxied.interfaces) > MAX_PROXIED_INTERFACES:
        words = f"must be at most {MAX_PROXIED_INTERFACES}, are {len(proxied.interfaces)}"
        raise invalid(f"{at}.interfaces", words)
    for index, interface in enumerate(proxied.interfaces):
        if not _INTERFACE.fullmatch(interface):
            words = f"{interface!r} is not the name of an interface: 1 to 15 letters, digits and _ . @ -"
            raise invalid(f"{at}.interfaces[{index}]", words)
        if interface in proxied.interfaces[:index]:
            raise invalid(f"{at}.interfaces[{index}]", f"{interface} is listed twice")
    _store_prefixes(proxied.prefixes, f"{at}.prefixes", MAX_PROXIED_PREFIXES)
    if proxied.mode not in ProxyMode.values():
        raise invalid(f"{at}.mode", "must be same-ports or new-ports", "same-ports", "new-ports")
    proxied.mode = proxied.mode or ProxyMode.PROXY_MODE_SAME_PORTS
