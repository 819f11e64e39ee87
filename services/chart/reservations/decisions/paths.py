"""Paths between two nodes to choose from: the one that a request gets, the shortest, the widest, that with the fewest
hops, and one that shares no link with the first (Dijkstra's algorithm over different costs). Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from chart.reservations.decisions.admission import Load, free_bps, widest_shortest_path
from chart.reservations.decisions.network import Network, NetworkLink
from chart.v1.reservations_pb2 import PathKind

Path = tuple[NetworkLink, ...]
Cost = tuple[float, ...]


@dataclass(frozen=True)
class Found:
    """A path, and in which respects it is the best one."""

    links: Path
    kinds: tuple[int, ...]
    free_bps: int
    admissible_bps: int
    bottleneck: NetworkLink

    @property
    def nodes(self) -> list[str]:
        """The nodes on it, both ends included."""
        return [self.links[0].from_node, *(link.to_node for link in self.links)]

    @property
    def delay_us(self) -> int:
        """Propagation delay; 0 when that of a link is not known."""
        known = all(link.delay_us for link in self.links)
        return sum(link.delay_us for link in self.links) if known else 0


def best(
    network: Network,
    source: str,
    destination: str,
    step: Callable[[Cost, NetworkLink], Cost],
    start: Cost,
    avoid: Collection[str] = (),
) -> Path:
    """The path of the least cost; empty when there is none. `step` gives the cost after one more link and never lowers
    it; nodes and links in `avoid` are not used.
    """
    waiting: list[tuple[Cost, int, str, Path]] = [(start, 0, source, ())]
    done: set[str] = set()
    pushed = 0
    while waiting:
        cost, _, node, path = heapq.heappop(waiting)
        if node == destination:
            return path
        if node in done:
            continue
        done.add(node)
        for link in network.outgoing.get(node, ()):
            if link.capacity_bps > 0 and link.to_node not in done and not {link.id, link.to_node} & set(avoid):
                pushed += 1
                heapq.heappush(waiting, (step(cost, link), pushed, link.to_node, (*path, link)))
    return ()


def alternatives(
    network: Network,
    load: Load,
    source: str,
    destination: str,
    start_us: int,
    end_us: int,
    avoid: Collection[str] = (),
) -> list[Found]:
    """Every path worth knowing, that of a request first; the same path under several kinds stands once."""
    free: dict[str, int] = {}

    def width(link: NetworkLink) -> int:
        if link.id not in free:
            free[link.id] = free_bps(link, load, start_us, end_us)
        return free[link.id]

    def allowed(link: NetworkLink) -> int:
        return -1 if {link.id, link.from_node, link.to_node} & set(avoid) else width(link)

    def hops(cost: Cost, _: NetworkLink) -> Cost:
        return (cost[0] + 1,)

    def delay(cost: Cost, link: NetworkLink) -> Cost:
        # A link of unknown delay is taken for one of a microsecond, and counts as a hop.
        return (cost[0] + max(1, link.delay_us), cost[1] + 1)

    def narrow(cost: Cost, link: NetworkLink) -> Cost:
        return (max(cost[0], -width(link)), cost[1] + 1)

    first = widest_shortest_path(network, source, destination, allowed)
    found: list[tuple[Sequence[NetworkLink], int]] = [(first, PathKind.PATH_KIND_WIDEST_SHORTEST)]
    found.append((best(network, source, destination, hops, (0,), avoid), PathKind.PATH_KIND_FEWEST_HOPS))
    found.append((best(network, source, destination, delay, (0, 0), avoid), PathKind.PATH_KIND_SHORTEST))
    widest = best(network, source, destination, narrow, (-float("inf"), 0), avoid)
    found.append((widest, PathKind.PATH_KIND_WIDEST))
    if first:
        found.append((_disjoint(network, source, destination, first, hops, avoid), PathKind.PATH_KIND_DISJOINT))
    kinds: dict[Path, list[int]] = {}
    for path, kind in found:
        if path:
            kinds.setdefault(tuple(path), []).append(kind)
    return [_described(path, tuple(each), width) for path, each in kinds.items()]


def _disjoint(
    network: Network,
    source: str,
    destination: str,
    first: Path,
    step: Callable[[Cost, NetworkLink], Cost],
    avoid: Collection[str],
) -> Path:
    """A path without the links of the first, and if there is one without its nodes in between."""
    links = {link.id for link in first}
    nodes = {link.to_node for link in first[:-1]}
    apart = best(network, source, destination, step, (0,), {*avoid, *links, *nodes})
    return apart or best(network, source, destination, step, (0,), {*avoid, *links})


def _described(path: Path, kinds: tuple[int, ...], width: Callable[[NetworkLink], int]) -> Found:
    bottleneck = min(path, key=width)
    return Found(path, kinds, width(bottleneck), min(link.admissible_bps for link in path), bottleneck)
