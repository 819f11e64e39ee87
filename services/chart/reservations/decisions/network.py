"""The network as admission sees it: nodes, directed links with capacities, and which node an address belongs to.

Plain data made from chart.topology.v1; where inference publishes a measured capacity of a link that is below the
stated one, the measured one counts.
"""

from __future__ import annotations

import bisect
import ipaddress
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from chart.common.ownership import Prefix
from chart.common.ownership import own_prefix as own_prefix
from chart.reservations.decisions.next_hops import NodeRoutes
from chart.reservations.decisions.room import Room
from chart.v1 import topology_pb2

DEFAULT_ADMISSION_SHARE = 0.8
# How much more than the admissible rate maximum-rate requests may be promised together with the guaranteed ones.
DEFAULT_OVERSUBSCRIPTION = 4.0


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """A directed link."""

    id: str
    from_node: str
    to_node: str
    capacity_bps: int
    admission_share: float = DEFAULT_ADMISSION_SHARE
    # Propagation delay one way; 0: unknown.
    delay_us: int = 0
    oversubscription: float = DEFAULT_OVERSUBSCRIPTION

    @property
    def admissible_bps(self) -> int:
        """What may be committed on it at any instant."""
        return int(self.capacity_bps * self.admission_share)

    @property
    def oversubscribable_bps(self) -> int:
        """What may be promised at any instant when maximum rates are counted in."""
        return int(self.capacity_bps * self.admission_share * self.oversubscription)


@dataclass(frozen=True)
class Network:
    """One moment's view of the topology."""

    # Node id -> prefixes of its own, as stated ("10.1.1.1/30" is the address 10.1.1.1).
    nodes: Mapping[str, tuple[Prefix, ...]]
    links: Mapping[str, NetworkLink]
    # Where nodes send packets, of those that say it.
    routes: Mapping[str, NodeRoutes] = field(default_factory=dict)
    # What nodes can hold, of those whose agent has reported.
    rooms: Mapping[str, Room] = field(default_factory=dict)
    # Of nodes of the overlay: by prefix, the paths of links that flows which enter there can be steered by.
    steering: Mapping[str, Mapping[Prefix, tuple[tuple[str, ...], ...]]] = field(default_factory=dict)

    @cached_property
    def outgoing(self) -> dict[str, list[NetworkLink]]:
        """Links by the node that sends on them, in id order."""
        found: dict[str, list[NetworkLink]] = {node: [] for node in self.nodes}
        for _, link in sorted(self.links.items()):
            found.setdefault(link.from_node, []).append(link)
        return found

    @cached_property
    def incoming(self) -> dict[str, list[NetworkLink]]:
        """Links that carry anything, by the node that receives on them."""
        found: dict[str, list[NetworkLink]] = {}
        for link in self.links.values():
            if link.capacity_bps > 0:
                found.setdefault(link.to_node, []).append(link)
        return found

    @cached_property
    def shortest(self) -> dict[tuple[str, str], dict[str, list[NetworkLink]]]:
        """Links of the fewest-hop paths by source and destination, as far as they were asked for."""
        return {}

    @cached_property
    def candidates(self) -> dict[tuple[str, str], list[str]]:
        """Sorted ids of the links of `shortest`, as far as they were asked for."""
        return {}

    @cached_property
    def _node_by_prefix(self) -> list[tuple[int, int, dict[int, str]]]:
        """IP version, length, and by network address the first node by id that states such a prefix; longest first."""
        found: dict[tuple[int, int], dict[int, str]] = {}
        for node, prefixes in sorted(self.nodes.items()):
            for own in prefixes:
                found.setdefault((own.version, own.prefixlen), {}).setdefault(int(own.network_address), node)
        return [(version, length, found[version, length]) for version, length in sorted(found, reverse=True)]

    @cached_property
    def _prefix_starts(self) -> list[tuple[int, int, int, str]]:
        """Every prefix as IP version, first address, length, node; in this order."""
        return sorted(
            (own.version, int(own.network_address), own.prefixlen, node)
            for node, prefixes in self.nodes.items()
            for own in prefixes
        )

    @cached_property
    def _own_prefixes(self) -> dict[str, Prefix | None]:
        """What `prefix_of` found, as far as it was asked for."""
        return {}

    def node_of(self, prefix: Prefix) -> str | None:
        """The node that an address or prefix belongs to, by the longest of the nodes' prefixes that contains it."""
        address = int(prefix.network_address)
        for version, length, nodes in self._node_by_prefix:
            if version == prefix.version and length <= prefix.prefixlen:
                rest = prefix.max_prefixlen - length
                node = nodes.get(address >> rest << rest)
                if node is not None:
                    return node
        return None

    def prefix_of(self, node: str) -> Prefix | None:
        """One prefix for everything that a node states as its own, if there is one that no other node has part in.

        None when the node has no address, or when its addresses have no common prefix of their own.
        """
        if node not in self._own_prefixes:
            self._own_prefixes[node] = self._own_prefix(node)
        return self._own_prefixes[node]

    def prefixes_of(self, node: str) -> tuple[Prefix, ...]:
        """Everything that a node states as its own, in as few prefixes as have no address of another node in them that
        it does not state itself: its one prefix, or each of its addresses and prefixes, IPv4 first.
        """
        common = self.prefix_of(node)
        if common is not None:
            return (common,)
        own = self.nodes[node]
        ipv4 = ipaddress.collapse_addresses(one for one in own if isinstance(one, ipaddress.IPv4Network))
        ipv6 = ipaddress.collapse_addresses(one for one in own if isinstance(one, ipaddress.IPv6Network))
        return (*ipv4, *ipv6)

    def _own_prefix(self, node: str) -> Prefix | None:
        own = self.nodes[node]
        if not own:
            return None
        common = own[0]
        for prefix in own[1:]:
            if prefix.version != common.version:
                return None
            while not _contains(common, prefix):
                common = common.supernet()
        last = int(common.broadcast_address)
        starts = self._prefix_starts
        first = bisect.bisect_left(starts, (common.version, int(common.network_address)))
        for number in range(first, len(starts)):
            version, start, length, other = starts[number]
            if version != common.version or start > last:
                break
            if other != node and length >= common.prefixlen:
                return None
        return common


def _contains(outer: Prefix, inner: Prefix) -> bool:
    if isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(outer, ipaddress.IPv6Network) and isinstance(inner, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def network_of(
    entities: Iterable[tuple[str, topology_pb2.TopologyEntity]],
    measured_capacity_bps: Mapping[tuple[str, str], float] | None = None,
    down: Container[str] = (),
    oversubscription: float = DEFAULT_OVERSUBSCRIPTION,
    routes: Mapping[str, NodeRoutes] | None = None,
    rooms: Mapping[str, Room] | None = None,
    steering: Mapping[str, Mapping[Prefix, tuple[tuple[str, ...], ...]]] | None = None,
) -> Network:
    """The network that topology records describe; `measured_capacity_bps` by (from node, to node) lowers
    capacities, links that are `down` have none. `routes`: where nodes send packets, of those that say it; `rooms`: what
    they can hold; `steering`: the paths of nodes of the overlay.
    """
    nodes: dict[str, tuple[Prefix, ...]] = {}
    links: dict[str, NetworkLink] = {}
    for _, entity in entities:
        if entity.WhichOneof("entity") == "node":
            stated = (own_prefix(text) for text in entity.node.addresses)
            nodes[entity.node.id] = tuple(prefix for prefix in stated if prefix is not None)
        elif entity.WhichOneof("entity") == "link":
            link = entity.link
            measured = (measured_capacity_bps or {}).get((link.from_node, link.to_node))
            capacity = link.capacity_bps if not measured else min(link.capacity_bps, int(measured))
            share = link.admission_share or DEFAULT_ADMISSION_SHARE
            if link.id in down:
                capacity = 0
            links[link.id] = NetworkLink(
                link.id, link.from_node, link.to_node, capacity, share, link.delay_us, oversubscription
            )
    known = {link_id: link for link_id, link in links.items() if link.from_node in nodes and link.to_node in nodes}
    return Network(nodes, known, routes or {}, rooms or {}, steering or {})
