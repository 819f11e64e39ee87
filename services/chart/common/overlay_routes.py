"""By which neighbours an overlay node reaches each of the others, the preferred first (Bavier et al., Increasing TCP
Throughput with an Enhanced Internet Control Plane, sections II and III: several may be the next hop, and alternates
are known before anything fails). Pure.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# What the kernel's table holds for one owner and colour.
NEXT_HOPS_MAX = 4


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
