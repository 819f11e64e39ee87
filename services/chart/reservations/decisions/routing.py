"""The links that packets between two nodes take, by the next hops that agents report of their nodes' kernels.

CHART follows routes and chooses none. Where a node has several next hops for a destination (equal-cost paths) packets
may take any of them, so all of them count. A node that does not say where it sends packets (no agent, or one of before,
or an interface on which no link is registered) is crossed on a path of fewest hops, and is named. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from chart.common.ownership import Prefix
from chart.reservations.decisions.network import Network, NetworkLink


@dataclass(frozen=True, slots=True)
class Route:
    """Every link that packets may take from a source to a destination, in the order in which they meet them."""

    links: tuple[NetworkLink, ...]
    # Why they do not arrive; empty: they do.
    fault: str = ""
    # Nodes on the way that do not say where they send them.
    silent: tuple[str, ...] = ()
    # Also of packets that do not arrive.
    looked_at: frozenset[str] = frozenset()

    @property
    def link_ids(self) -> tuple[str, ...]:
        """The links' ids."""
        return tuple(link.id for link in self.links)


# The links to take from a node that does not say; none: there is no path from it.
Crossing = Callable[[str], Sequence[NetworkLink]]


# By node: the links that packets were seen to leave by, where its routes say others.
Observed = Mapping[str, Sequence[str]]
_NOTHING_SEEN: Observed = {}


def route(
    network: Network,
    source: str,
    destination: str,
    towards: Collection[str],
    crossing: Crossing,
    observed: Observed = _NOTHING_SEEN,
) -> Route | None:
    """The route of packets to the addresses `towards` of the destination (CIDR; none: all that it has), of all of them
    together. Those that do not arrive do not count beside others that do. What was seen counts before what a node
    reports. None: no node on the way says anything.
    """
    links: dict[str, NetworkLink] = {}
    silent: dict[str, None] = {}
    fault = ""
    reported = arrived = False
    looked_at: set[str] = set()
    for prefix in _addresses(network, destination, towards):
        one = _Walk(network, destination, prefix, crossing, observed)
        one.walk(source)
        reported = reported or one.reported
        fault = fault or one.fault
        looked_at |= one.links.keys()
        if not one.fault:
            arrived = True
            links.update(one.links)
            silent.update(one.silent)
    if not reported:
        return None
    return Route(tuple(links.values()), "" if arrived else fault, tuple(silent), frozenset(looked_at))


def steered_routes(
    network: Network,
    first: Route,
    source: str,
    destination: str,
    towards: Collection[str],
    crossing: Crossing,
    observed: Observed = _NOTHING_SEEN,
) -> list[Route]:
    """The other routes that packets can be steered by, where `first` is the one that they take by themselves: those of
    the first node on it that chooses, of the overlay. Of a destination with addresses for which the choices differ
    there is none. Where packets do not arrive by themselves, any node that they meet may be the one.
    """
    prefixes = _addresses(network, destination, towards)
    met = first.links or [network.links[one] for one in sorted(first.looked_at)]
    for node in dict.fromkeys(link.from_node for link in met):
        choices = network.steering.get(node)
        if not choices:
            continue
        paths = {choices.get(prefix) for prefix in prefixes}
        if len(paths) != 1 or None in paths:
            continue
        found = []
        for path in paths.pop() or ():
            steps = {network.links[one].from_node: (one,) for one in path if one in network.links}
            if len(steps) < len(path):
                continue
            one = route(network, source, destination, towards, crossing, {**steps, **observed})
            if one is not None and not one.fault and set(one.link_ids) != set(first.link_ids):
                found.append(one)
        if found or not first.fault:
            return found
    return []


def follows(
    network: Network,
    source: str,
    destination: str,
    towards: Collection[str],
    path: Sequence[str],
    observed: Observed = _NOTHING_SEEN,
) -> bool:
    """Whether a path is the one that packets take, or that they can be steered by, as far as nodes report it or it was
    seen.
    """

    def crossing(node: str) -> Sequence[NetworkLink]:
        return [link for link in network.outgoing.get(node, ()) if link.id in path][:1]

    found = route(network, source, destination, towards, crossing, observed)
    if found is None:
        return True
    steered = steered_routes(network, found, source, destination, towards, crossing, observed)
    return any(not one.fault and set(one.link_ids) == set(path) for one in (found, *steered))


def _addresses(network: Network, node: str, towards: Collection[str]) -> list[Prefix]:
    own = network.nodes.get(node, ())
    wanted = [ipaddress.ip_network(text, strict=False) for text in towards]
    some = [prefix for prefix in own if any(_overlap(prefix, one) for one in wanted)]
    return some or list(own)


def _overlap(one: Prefix, other: Prefix) -> bool:
    if isinstance(one, ipaddress.IPv4Network) and isinstance(other, ipaddress.IPv4Network):
        return one.overlaps(other)
    return isinstance(one, ipaddress.IPv6Network) and isinstance(other, ipaddress.IPv6Network) and one.overlaps(other)


class _Walk:
    """From node to node towards one prefix."""

    def __init__(
        self, network: Network, destination: str, prefix: Prefix, crossing: Crossing, observed: Observed
    ) -> None:
        self._network = network
        self._destination = destination
        self._prefix = prefix
        self._crossing = crossing
        self._observed = observed
        self.links: dict[str, NetworkLink] = {}
        self.silent: dict[str, None] = {}
        self.reported = False
        self.fault = ""

    def walk(self, source: str) -> None:
        """Follow every way that packets may take."""
        waiting, seen = [source], {source}
        while waiting:
            for link in self._leaving(waiting.pop(0)):
                if link.capacity_bps <= 0 and not self.fault:
                    self.fault = (
                        f"packets to {self._destination} ({self._prefix}) are routed over {link.id}, which is down or"
                        " has no capacity"
                    )
                self.links[link.id] = link
                if link.to_node not in seen and link.to_node != self._destination:
                    waiting.append(link.to_node)
                seen.add(link.to_node)
        if self._destination not in seen and not self.fault:
            self.fault = (
                f"packets from {source} to {self._destination} ({self._prefix}) are sent round"
                f" {', '.join(sorted(seen))} and do not arrive"
            )

    def _leaving(self, node: str) -> Sequence[NetworkLink]:
        seen = [self._network.links[one] for one in self._observed.get(node, ()) if one in self._network.links]
        if seen:
            self.reported = True
            return seen
        hops = self._network.routes.get(node, {}).get(self._prefix)
        if hops is not None:
            self.reported = True
            known = [self._network.links[one] for one in hops.link_ids if one in self._network.links]
            if len(known) == len(hops.link_ids) and not hops.unregistered:
                if not known:
                    self.fault = self.fault or f"node {node} has no route to {self._destination} ({self._prefix})"
                return known
        self.silent[node] = None
        links = self._crossing(node)
        if not links:
            self.fault = self.fault or f"no path of links from {node} to {self._destination}"
        return links
