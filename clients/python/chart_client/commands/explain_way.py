"""What a flow meets on its way besides links: ends of tunnels, proxies, edges; each with the configuration that says
so, its state, and why it does not act. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chart_client.models import Node, NodeEdge, Tunnel, TunnelEnd
from chart_client.units import format_bps

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Part:
    """``by``: the configuration; ``why_not``: why it does not act, empty when it does as far as it is known."""

    kind: str
    node: str
    by: str
    state: str
    why_not: str = ""


def networks(texts: Iterable[str]) -> list[Network]:
    """Those of the texts that are addresses or networks."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            continue
    return found


def ends_of_flow(text: str) -> tuple[list[Network], list[Network]]:
    """Addresses of `SOURCE:PORT-DESTINATION:PORT`; of a part of it those that are there."""
    source, _, destination = text.partition("-")
    first, second = (networks([end.rpartition(":")[0].strip("[]")]) for end in (source, destination))
    return first, second


def _meet(prefixes: Iterable[str], addresses: Sequence[Network]) -> str | None:
    """The first prefix that one of the addresses lies in or overlaps."""
    for prefix in prefixes:
        for network in networks([prefix]):
            if any(network.version == one.version and network.overlaps(one) for one in addresses):
                return prefix
    return None


def _node_words(node: Node) -> tuple[str, str]:
    """State of the node's agent, and why nothing of it may be believed."""
    if node.state is None:
        return "not reported", f"no agent of {node.id} reports"
    if node.state.stale:
        return "stale", f"the agent of {node.id} has not reported since {node.state.reported_at.isoformat()}"
    return node.state.enforcement, ""


def _tunnel(node: Node, end: TunnelEnd, prefix: str, nodes: Mapping[str, Node], tunnel: Tunnel | None) -> Part:
    by = f"prefix {prefix} of {node.id}'s end of {end.tunnel}, into {end.interface} to {end.peer_node}"
    peer = nodes.get(end.peer_node)
    other = [
        one for one in (peer.tunnel_ends if peer else ()) if one.tunnel == end.tunnel and one.role == "destination"
    ]
    if not other:
        return Part("tunnel", node.id, by, "no destination", f"{end.peer_node} has no destination of {end.tunnel}")
    if tunnel is None or tunnel.state is None:
        return Part("tunnel", node.id, by, "not reported", f"the origin on {node.id} has not reported: does it run?")
    said = tunnel.state
    target = f", target {format_bps(tunnel.target_bps)}" if tunnel.target_bps else ""
    state = f"{said.connections_established} of {said.connections_wanted} connections, {format_bps(tunnel.rate_bps)}"
    lost = said.last_error or "no connection to the destination"
    return Part("tunnel", node.id, by, state + target, "" if said.connections_established else lost)


def _edge(node: Node, edge: NodeEdge) -> Part:
    rest = (
        f"EF without a grant up to {format_bps(edge.aggregate_bps)}" if edge.aggregate_bps else "no EF without a grant"
    )
    by = f"edge {edge.interface}: grants to their rate, {rest}; above: {edge.exceed}"
    state, why_not = _node_words(node)
    faults = [one for one in (node.state.faults if node.state else ()) if edge.interface in one]
    if not why_not and state != "enforce":
        why_not = f"{node.id} does not enforce: its mode is {state}"
    return Part("edge", node.id, by, "fault" if faults else state, faults[0] if faults else why_not)


def _proxy(node: Node, prefix: str | None) -> Part:
    proxied = node.proxied_traffic
    hosts = f"hosts of {prefix}" if prefix else "all hosts"
    by = f"proxied traffic: TCP of {hosts} at {', '.join(proxied.interfaces)}, mode {proxied.mode}"
    state, why_not = _node_words(node)
    return Part("proxy", node.id, by, state, why_not)


def way(
    nodes: Iterable[Node],
    tunnels: Iterable[Tunnel],
    sources: Sequence[Network],
    destinations: Sequence[Network],
    path: Sequence[str],
) -> list[Part]:
    """Everything that the registry states for such a flow; ``path``: the nodes that it passes, as far as known.

    A tunnel's end counts by the prefixes that it leads into the tunnel, a proxy by its hosts, an edge by its node.
    """
    known = {node.id: node for node in nodes}
    reported = {one.id: one for one in tunnels}
    found: list[Part] = []
    for node in sorted(known.values(), key=lambda one: (path.index(one.id) if one.id in path else len(path), one.id)):
        if node.id in path:
            found += [_edge(node, edge) for edge in node.edges]
        if node.proxied_traffic.interfaces:
            prefix = _meet(node.proxied_traffic.prefixes, [*sources, *destinations])
            if prefix or (not node.proxied_traffic.prefixes and node.id in path):
                found.append(_proxy(node, prefix))
        for end in node.tunnel_ends:
            led = _meet(end.prefixes, destinations)
            if end.role == "origin" and led:
                found.append(_tunnel(node, end, led, known, reported.get(end.tunnel)))
    return found
