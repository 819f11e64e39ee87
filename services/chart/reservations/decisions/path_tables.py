"""What the kernels of overlay members shall know: their overlay links, who owns which prefixes, next hops (Bavier et
al., Increasing TCP Throughput with an Enhanced Internet Control Plane, sections II and III). Pure.

An overlay link is a pair of registered links between two members, one for each direction, whose interfaces have
addresses of one network; where the two links have the tag virtual=true, routers lie between. Its cost is the stated
delay. A link that one of its ends calls down or dead comes after all others, not out of the table: its probes go on.
Colour 0 is the way of everything that does not choose. The other colours are paths that flows may choose between,
diverse ones from each node: these stay as they are while links fail, but none is a choice that a failed link is on.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from chart.common import overlay_routes
from chart.common.overlay_routes import OverlayLink
from chart.common.ownership import Prefix, own_prefix
from chart.reservations.decisions.next_hops import NextHops, NodeRoutes
from chart.v1 import node_state_pb2, path_table_pb2, topology_pb2

# Of a link of which no delay is stated, milliseconds; what a link that fails costs more than any way around it.
LEAST_COST_MS = 0.1
FAILED_COST_MS = 1e6
# Of more members paths to choose between are not computed: with their number squared it takes seconds.
CHOOSING_MEMBERS_MAX = 40
VIRTUAL_TAG = "virtual"
# Octets of IP that an overlay link has to carry, so that IPv6 fits inside (RFC 8200, section 5), and those that it can.
LEAST_MTU, MOST_MTU = 1350, 65_535

# Ids of links in the order in which packets meet them.
Path = tuple[str, ...]
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
            # 0: its agent does not say.
            if interface.link_id == link.id and not 0 < interface.mtu < LEAST_MTU:
                failed = not interface.up or link.id in dead
                mtu = min(interface.mtu, MOST_MTU)
                found.append(_End(link, _addresses(interface.addresses), mtu, failed))
    return found


@dataclass(frozen=True)
class _Joined:
    """One direction of an overlay link, and the addresses of its two ends."""

    end: _End
    back: _End
    local: Interface
    remote: Interface

    @property
    def ends(self) -> tuple[str, str]:
        return self.end.link.from_node, self.end.link.to_node

    @property
    def cost_ms(self) -> float:
        return max(self.end.link.delay_us / 1e3, LEAST_COST_MS)

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
    costs = overlay_routes.graph(OverlayLink(*one.ends, one.cost_ms + FAILED_COST_MS * one.failed) for one in joined)
    chosen = _chosen(frozenset(OverlayLink(*one.ends, one.cost_ms) for one in joined), frozenset(members))
    first: dict[tuple[str, str], _Joined] = {}
    for link in sorted(joined, key=lambda one: one.rank):
        first.setdefault(link.ends, link)
    owned: dict[str, list[str]] = {}
    taken: set[str] = set()
    for name, node in members.items():
        owned[name] = [prefix for prefix in _prefixes(node, outer) if prefix not in taken]
        taken.update(owned[name])
    return {name: _table(name, joined, owned, costs, generation, chosen, first) for name in members}


@functools.lru_cache(maxsize=4)
def _chosen(
    links: frozenset[OverlayLink], members: frozenset[str]
) -> Mapping[str, Mapping[str, Sequence[overlay_routes.ChosenPath]]]:
    """By owner and node, the paths that flows may choose between. Kept: failures do not change them."""
    if len(members) > CHOOSING_MEMBERS_MAX:
        return {}
    costs = overlay_routes.graph(links)
    return {owner: overlay_routes.coloured_paths(costs, members & costs.keys(), owner) for owner in sorted(members)}


def _coloured(
    node: str,
    chosen: Mapping[str, Sequence[overlay_routes.ChosenPath]],
    usual: Sequence[str],
    to: Mapping[str, Sequence[str]],
    first: Mapping[tuple[str, str], _Joined],
) -> Iterator[path_table_pb2.OverlayPath]:
    """What a node has to know of the colours that lead to one owner. ``usual``: its next hops by colour 0."""
    own = {path.colour: path for path in chosen.get(node, ())}
    # One path is no choice, but one that is left of several stays what flows keep.
    own = own if len(own) > 1 else {}
    for colour, hop in sorted(overlay_routes.hops_at(node, chosen).items()):
        order = [*to.get(hop, ()), *(link_id for link_id in usual if link_id not in to.get(hop, ()))]
        path = path_table_pb2.OverlayPath(colour=colour, next_hops=order[: overlay_routes.NEXT_HOPS_MAX])
        links = [first[step] for step in own[colour].hops] if colour in own else []
        if links and not any(one.failed for one in links):
            path.choice = True
            path.capacity_bps = min(one.end.link.capacity_bps for one in links)
            path.link_ids.extend(one.end.link.id for one in links)
        yield path


def _table(
    node: str,
    joined: Iterable[_Joined],
    owned: Mapping[str, list[str]],
    costs: overlay_routes.Graph,
    generation: int,
    chosen: Mapping[str, Mapping[str, Sequence[overlay_routes.ChosenPath]]],
    first: Mapping[tuple[str, str], _Joined],
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
            owner.paths.extend(_coloured(node, chosen.get(name, {}), ways, to, first))
    return table


def _owned(
    table: path_table_pb2.PathTable, registered: Iterable[Prefix]
) -> Iterator[tuple[Prefix, path_table_pb2.OverlayOwner]]:
    """Prefixes of owners and registered ones inside them, each with the owner whose prefix is the longest around it."""
    owners: dict[Prefix, path_table_pb2.OverlayOwner] = {}
    for owner in table.owners:
        owners.update((prefix, owner) for text in owner.prefixes if (prefix := own_prefix(text)) is not None)
    lengths = sorted({(prefix.version, prefix.prefixlen) for prefix in owners}, reverse=True)
    for prefix in {*owners, *registered}:
        for version, length in lengths:
            if version == prefix.version and length <= prefix.prefixlen:
                around = owners.get(prefix.supernet(new_prefix=length))
                if around is not None:
                    yield prefix, around
                    break


def steered(
    table: path_table_pb2.PathTable,
    routes: NodeRoutes,
    state: node_state_pb2.NodeState | None,
    registered: Iterable[Prefix] = (),
) -> NodeRoutes:
    """Where a member sends packets: by its first next hop that is not dead, for prefixes of the overlay and what of the
    registered ones is inside them, and by its kernel's routes otherwise, also while no overlay runs there.
    """
    if state is None or not state.HasField("overlay"):
        return routes
    dead = {one.link_id for one in state.overlay.links if not one.alive}
    found = dict(routes)
    for prefix, owner in _owned(table, registered):
        for path in owner.paths:
            if path.colour == 0:
                found[prefix] = NextHops((next((one for one in path.next_hops if one not in dead), path.next_hops[0]),))
    return found


def steering(
    table: path_table_pb2.PathTable,
    state: node_state_pb2.NodeState | None,
    dead: Collection[str] = (),
    registered: Iterable[Prefix] = (),
) -> dict[Prefix, tuple[Path, ...]]:
    """By prefix of an owner, and registered prefix inside it, the paths from a member to it that flows may choose
    between, as ids of links; nothing where no overlay runs. ``dead``: overlay links that any node calls so; a path over
    one is none.
    """
    if state is None or not state.HasField("overlay"):
        return {}
    found: dict[Prefix, tuple[Path, ...]] = {}
    for prefix, owner in _owned(table, registered):
        paths = tuple(
            tuple(path.link_ids) for path in owner.paths if path.choice and not set(path.link_ids) & set(dead)
        )
        if len(paths) > 1:
            found[prefix] = paths
    return found
