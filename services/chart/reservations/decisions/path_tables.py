"""What the kernels of overlay members shall know: their overlay links, who owns which prefixes, next hops (Bavier et
al., Increasing TCP Throughput with an Enhanced Internet Control Plane, sections II and III). Pure.

An overlay link is a pair of registered links between two members, one for each direction, whose interfaces have
addresses of one network; where the two links have the tag virtual=true, routers lie between. Its cost is the stated
delay. A link that one of its ends calls down or dead comes after all others, not out of the table: its probes go on.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chart.common import overlay_routes
from chart.common.overlay_routes import OverlayLink
from chart.common.ownership import own_prefix
from chart.reservations.decisions.next_hops import NextHops, NodeRoutes
from chart.v1 import node_state_pb2, path_table_pb2, topology_pb2

# Of a link of which no delay is stated, milliseconds; what a link that fails costs more than any way around it.
LEAST_COST_MS = 0.1
FAILED_COST_MS = 1e6
VIRTUAL_TAG = "virtual"

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True)
class _End:
    """A registered link from its node's side."""

    link: topology_pb2.Link
    addresses: tuple[Interface, ...]
    mtu: int
    failed: bool

    @property
    def virtual(self) -> bool:
        return self.link.tags.get(VIRTUAL_TAG) == "true"


def _addresses(texts: Iterable[str]) -> tuple[Interface, ...]:
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_interface(text))
        except ValueError:
            # Of a newer agent: what cannot be read is no end of a link.
            continue
    return tuple(found)


def _ends(
    members: Mapping[str, topology_pb2.Node],
    links: Iterable[topology_pb2.Link],
    states: Mapping[str, node_state_pb2.NodeState],
) -> list[_End]:
    found = []
    for link in sorted(links, key=lambda one: one.id):
        state = states.get(link.from_node)
        if link.from_node not in members or link.to_node not in members or state is None:
            continue
        dead = {one.link_id for one in state.overlay.links if not one.alive}
        for interface in state.interfaces:
            if interface.link_id == link.id:
                failed = not interface.up or link.id in dead
                found.append(_End(link, _addresses(interface.addresses), interface.mtu, failed))
    return found


@dataclass(frozen=True)
class _Joined:
    """One direction of an overlay link, and the addresses of its two ends."""

    end: _End
    back: _End
    local: Interface
    remote: Interface

    @property
    def failed(self) -> bool:
        return self.end.failed or self.back.failed

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Of several between the same nodes the least comes first."""
        return self.failed, self.end.link.delay_us, self.end.link.id


def _shared(one: _End, other: _End) -> tuple[Interface, Interface] | None:
    """Addresses by which two opposite links make an overlay link; None: they do not."""
    for own in one.addresses:
        for peer in other.addresses:
            routed = one.virtual and other.virtual and own.version == peer.version
            if own.ip != peer.ip and (routed or own.network == peer.network):
                return own, peer
    return None


def _prefixes(node: topology_pb2.Node, outer: frozenset[object]) -> list[str]:
    """What is behind a node: its addresses but those that overlay links end at, and the prefixes of its membership."""
    own = {interface.ip for interface in _addresses(node.addresses)} - outer
    hosts = sorted(f"{address}/{address.max_prefixlen}" for address in own)
    return [*hosts, *(prefix for prefix in node.overlay.prefixes if prefix not in hosts)]


def path_tables(
    nodes: Mapping[str, topology_pb2.Node],
    links: Iterable[topology_pb2.Link],
    states: Mapping[str, node_state_pb2.NodeState],
    generation: int,
) -> dict[str, path_table_pb2.PathTable]:
    """The table of every member, by node. A prefix that several state is the first's by node id."""
    members = {name: node for name, node in sorted(nodes.items()) if node.HasField("overlay")}
    ends = _ends(members, links, states)
    between: dict[tuple[str, str], list[_End]] = {}
    for end in ends:
        between.setdefault((end.link.from_node, end.link.to_node), []).append(end)
    joined: list[_Joined] = []
    for one in ends:
        for other in between.get((one.link.to_node, one.link.from_node), ()):
            if (addresses := _shared(one, other)) is not None:
                joined.append(_Joined(one, other, *addresses))
                break
    outer = frozenset(one.local.ip for one in joined)
    costs = overlay_routes.graph(
        OverlayLink(
            one.end.link.from_node,
            one.end.link.to_node,
            max(one.end.link.delay_us / 1e3, LEAST_COST_MS) + FAILED_COST_MS * one.failed,
        )
        for one in joined
    )
    owned: dict[str, list[str]] = {}
    taken: set[str] = set()
    for name, node in members.items():
        owned[name] = [prefix for prefix in _prefixes(node, outer) if prefix not in taken]
        taken.update(owned[name])
    return {name: _table(name, joined, owned, costs, generation) for name in members}


def _table(
    node: str,
    joined: Iterable[_Joined],
    owned: Mapping[str, list[str]],
    costs: overlay_routes.Graph,
    generation: int,
) -> path_table_pb2.PathTable:
    table = path_table_pb2.PathTable(node=node, generation=generation)
    to: dict[str, list[str]] = {}
    for one in sorted((one for one in joined if one.end.link.from_node == node), key=lambda one: one.rank):
        link = one.end.link
        to.setdefault(link.to_node, []).append(link.id)
        table.links.add(
            link_id=link.id,
            neighbour=link.to_node,
            local_address=str(one.local.ip),
            remote_address=str(one.remote.ip),
            interface="" if one.end.virtual else link.interface,
            mtu=min((end.mtu for end in (one.end, one.back) if end.mtu), default=0),
            capacity_bps=link.capacity_bps,
        )
    hops = overlay_routes.next_hops(costs, node)
    for name, prefixes in owned.items():
        owner = table.owners.add(node=name, prefixes=prefixes)
        ways = [link_id for neighbour in hops.get(name, ()) for link_id in to.get(neighbour, ())]
        if ways:
            owner.paths.add(colour=0, next_hops=ways[: overlay_routes.NEXT_HOPS_MAX])
    return table


def steered(table: path_table_pb2.PathTable, routes: NodeRoutes, state: node_state_pb2.NodeState | None) -> NodeRoutes:
    """Where a member sends packets: by its first next hop that is not dead, for prefixes of the overlay, and by its
    kernel's routes otherwise, also while no overlay runs there.
    """
    if state is None or not state.HasField("overlay"):
        return routes
    dead = {one.link_id for one in state.overlay.links if not one.alive}
    found = dict(routes)
    for owner in table.owners:
        for path in owner.paths:
            if path.colour == 0:
                hop = next((one for one in path.next_hops if one not in dead), path.next_hops[0])
                for text in owner.prefixes:
                    if (prefix := own_prefix(text)) is not None:
                        found[prefix] = NextHops((hop,))
    return found
