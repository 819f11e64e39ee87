"""By which neighbours an overlay node reaches each of the others, the preferred first (Bavier et al., Increasing TCP
Throughput with an Enhanced Internet Control Plane, sections II and III: several may be the next hop, and alternates
are known before anything fails). Pure.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# What the kernel's table holds for one owner and colour.
NEXT_HOPS_MAX = 4
# Paths that flows may choose between, and the colours that carry them; colour 0 is no choice but the way of everything
# else, and of what has to go round a failure.
PATHS_MAX = 3
COLOURS = range(1, 16)
# What a link costs again for each path that takes it already, times its own cost, and a node between likewise.
SHARED = 1000.0


@dataclass(frozen=True)
class OverlayLink:
    """One direction of an overlay link; cost: what is to be little, such as the delay in milliseconds, above 0."""

    from_node: str
    to_node: str
    cost: float


Graph = Mapping[str, Mapping[str, float]]


def graph(links: Iterable[OverlayLink]) -> Graph:
    """Costs by node and neighbour; of two links between the same nodes the cheaper one. Raises ValueError."""
    costs: dict[str, dict[str, float]] = {}
    for link in links:
        if not 0 < link.cost < math.inf:
            raise ValueError(f"overlay link {link.from_node} to {link.to_node}: the cost is to be above 0")
        own = costs.setdefault(link.from_node, {})
        own[link.to_node] = min(link.cost, own.get(link.to_node, math.inf))
        costs.setdefault(link.to_node, {})
    return costs


def distances(costs: Graph, source: str, without: str) -> dict[str, float]:
    """Least cost from one node to all that can be reached when another node does not exist."""
    found: dict[str, float] = {}
    queue = [(0.0, source)]
    while queue:
        cost, node = heapq.heappop(queue)
        if node in found:
            continue
        found[node] = cost
        for neighbour, step in costs.get(node, {}).items():
            if neighbour != without and neighbour not in found:
                heapq.heappush(queue, (cost + step, neighbour))
    return found


def next_hops(costs: Graph, node: str, most: int = NEXT_HOPS_MAX) -> dict[str, tuple[str, ...]]:
    """For each node that can be reached: the neighbours to reach it by, in order of cost, then of name.

    The cost by a neighbour is that of its way without this node: a packet that had to be turned back does not return.
    """
    ways: dict[str, list[tuple[float, str]]] = {}
    for neighbour, step in costs.get(node, {}).items():
        for owner, cost in distances(costs, neighbour, node).items():
            ways.setdefault(owner, []).append((step + cost, neighbour))
    return {owner: tuple(neighbour for _, neighbour in sorted(found)[:most]) for owner, found in sorted(ways.items())}


@dataclass(frozen=True)
class ChosenPath:
    """A path from one node to another that flows may choose; nodes with both ends."""

    colour: int
    nodes: tuple[str, ...]

    @property
    def hops(self) -> Iterable[tuple[str, str]]:
        """Each node and the next."""
        return itertools.pairwise(self.nodes)


def _cheapest(costs: Graph, source: str, owner: str, shared: Mapping[object, int]) -> tuple[str, ...] | None:
    """The path of least cost, where what others take already costs more; of equals the first by name."""
    queue: list[tuple[float, tuple[str, ...]]] = [(0.0, (source,))]
    done: set[str] = set()
    while queue:
        cost, nodes = heapq.heappop(queue)
        node = nodes[-1]
        if node == owner:
            return nodes
        if node in done:
            continue
        done.add(node)
        for neighbour, step in costs.get(node, {}).items():
            if neighbour not in done:
                times = shared.get((node, neighbour), 0) + shared.get(neighbour, 0)
                heapq.heappush(queue, (cost + step * (1.0 + SHARED * times), (*nodes, neighbour)))
    return None


def diverse_paths(costs: Graph, source: str, owner: str, most: int = PATHS_MAX) -> list[tuple[str, ...]]:
    """Paths of least cost, each as far from those before it as it can be: without a link or a node between of theirs
    where that is possible. A path that shares its links with one before is none.

    Of a network in which the cheapest path bars every other one, only that is found.
    """
    found: list[tuple[str, ...]] = []
    shared: Counter[object] = Counter()
    while len(found) < most:
        nodes = _cheapest(costs, source, owner, shared)
        if nodes is None or nodes in found:
            break
        found.append(nodes)
        for one, other in itertools.pairwise(nodes):
            shared[one, other] += 1
            shared[other, one] += 1
        shared.update(nodes[1:-1])
    return found


def coloured_paths(
    costs: Graph, sources: Iterable[str], owner: str, most: int = PATHS_MAX
) -> dict[str, list[ChosenPath]]:
    """For each source its paths to one owner, the cheapest first, with colours by which all nodes between know them.

    A colour is at every node one next hop: paths have the same one where they agree from the node at which they meet.
    What finds no colour left is not offered.
    """
    following: dict[int, dict[str, str]] = {colour: {} for colour in COLOURS}
    chosen: dict[str, list[ChosenPath]] = {}
    found = {source: diverse_paths(costs, source, owner, most) for source in sorted(sources) if source != owner}
    for rank in range(most):
        for source, paths in found.items():
            if rank >= len(paths):
                continue
            taken = {path.colour for path in chosen.get(source, ())}
            steps = list(itertools.pairwise(paths[rank]))
            for colour in COLOURS:
                known = following[colour]
                if colour not in taken and all(known.get(one, other) == other for one, other in steps):
                    known.update(steps)
                    chosen.setdefault(source, []).append(ChosenPath(colour, paths[rank]))
                    break
    return chosen


def hops_at(node: str, chosen: Mapping[str, Iterable[ChosenPath]]) -> dict[int, str]:
    """What a node has to know of the paths to one owner: by colour, the neighbour that is next."""
    return {
        path.colour: after
        for paths in chosen.values()
        for path in paths
        for before, after in path.hops
        if before == node
    }
