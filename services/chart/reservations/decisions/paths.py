"""Paths between two nodes to choose from: the one that a request gets, the shortest, the widest, that with the fewest
hops, and one that shares no link with the first (Dijkstra's algorithm over different costs). Pure.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from chart.reservations.decisions import routing
from chart.reservations.decisions.admission import (
    Ask,
    Load,
    best_route,
    free_bps,
    routed,
    steered,
    widest_shortest_path,
)
from chart.reservations.decisions.network import Network, NetworkLink
from chart.v1.reservations_pb2 import PathKind, PathSource

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
    source: int = PathSource.PATH_SOURCE_COMPUTED
    # Nodes on it that do not say where they send packets, of a routed path.
    silent: tuple[str, ...] = ()

    @property
    def nodes(self) -> list[str]:
        """The nodes on it, both ends included, each once."""
        return list(dict.fromkeys([self.links[0].from_node, *(link.to_node for link in self.links)]))

    @property
    def branches(self) -> bool:
        """Whether packets may take one way or another (equal-cost paths)."""
        return len({link.from_node for link in self.links}) < len(self.links)

    @property
    def delay_us(self) -> int:
        """Propagation delay; 0 when that of a link is not known, or the way."""
        known = all(link.delay_us for link in self.links) and not self.branches
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
    """Every path worth knowing, that of a request first; the same path under several kinds stands once. Where nodes
    report their routes the first is the one that packets take, `avoid` or not, if there is one; in the overlay the one
    that a request would be steered by, and next come those that it can be steered by too. The others are what there
    would be.
    """
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

    def crossing(node: str) -> Sequence[NetworkLink]:
        return widest_shortest_path(network, node, destination, width)[:1]

    ask = Ask(source, destination, 0, 0, start_us, end_us)
    followed = routed(network, ask, crossing)
    others = steered(network, ask, followed, crossing) if followed is not None else []
    if followed is not None:
        own = best_route((followed, *others), dataclasses.replace(ask, avoid=frozenset(avoid)), allowed)
        others = [one for one in (followed, *others) if one is not own] if others else []
        followed = own
    first = widest_shortest_path(network, source, destination, allowed)
    found: list[tuple[Sequence[NetworkLink], int]] = [(first, PathKind.PATH_KIND_WIDEST_SHORTEST)]
    found.append((best(network, source, destination, hops, (0,), avoid), PathKind.PATH_KIND_FEWEST_HOPS))
    found.append((best(network, source, destination, delay, (0, 0), avoid), PathKind.PATH_KIND_SHORTEST))
    widest = best(network, source, destination, narrow, (-float("inf"), 0), avoid)
    found.append((widest, PathKind.PATH_KIND_WIDEST))
    if first:
        found.append((_disjoint(network, source, destination, first, hops, avoid), PathKind.PATH_KIND_DISJOINT))
    if followed is not None:
        # What packets do not take is no request's path.
        found[0] = (() if followed.fault else followed.links, PathKind.PATH_KIND_ROUTED)
        found[1:1] = [(one.links, PathKind.PATH_KIND_STEERED) for one in others if not one.fault]
    kinds: dict[Path, list[int]] = {}
    for path, kind in found:
        if path:
            kinds.setdefault(tuple(path), []).append(kind)
    steers = frozenset(one.link_ids for one in (followed, *others) if one) if others else frozenset()
    return [_described(path, tuple(each), width, followed, steers) for path, each in kinds.items()]


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


def _described(
    path: Path,
    kinds: tuple[int, ...],
    width: Callable[[NetworkLink], int],
    followed: routing.Route | None,
    steers: Collection[tuple[str, ...]],
) -> Found:
    bottleneck = min(path, key=width)
    source = PathSource.PATH_SOURCE_COMPUTED
    silent: tuple[str, ...] = ()
    if followed is not None and PathKind.PATH_KIND_ROUTED in kinds:
        silent = followed.silent
        source = PathSource.PATH_SOURCE_PARTLY_ROUTED if silent else PathSource.PATH_SOURCE_ROUTED
    if tuple(link.id for link in path) in steers:
        source = PathSource.PATH_SOURCE_STEERED
    admissible_bps = min(link.admissible_bps for link in path)
    return Found(path, kinds, width(bottleneck), admissible_bps, bottleneck, source, silent)
