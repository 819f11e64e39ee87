"""Composition of measured segments along paths of the topology: delays add up, bandwidth is the bottleneck.

The idea of iPlane (Madhyastha et al., OSDI 2006) and of prediction trees (Ramasubramanian et al., SIGMETRICS 2009) on
the network that operators state: links with a capacity and a delay, shortest path by delay, then by hops.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chart.inference.observations import Completion, Floats, Observations

# Delay that stands for one hop where links state none.
HOP_DELAY_US = 1.0
# Spread of a composed logarithm per hop; intervals scale it by what held-out pairs show.
SPREAD_PER_HOP = 0.05


@dataclass(frozen=True)
class Segment:
    """A directed link between two nodes."""

    source: str
    destination: str
    capacity_bps: float
    delay_us: float


@dataclass(frozen=True)
class Network:
    """Directed links by the node they leave."""

    leaving: Mapping[str, Sequence[Segment]]

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Network:
        """A network of segments."""
        leaving: dict[str, list[Segment]] = {}
        for segment in segments:
            leaving.setdefault(segment.source, []).append(segment)
        return cls(leaving)

    def paths_from(self, source: str) -> dict[str, tuple[Segment, ...]]:
        """The path of least delay to every node that can be reached, the source itself left out."""
        paths: dict[str, tuple[Segment, ...]] = {}
        queue: list[tuple[float, int, str, tuple[Segment, ...]]] = [(0.0, 0, source, ())]
        while queue:
            delay_us, hops, node, path = heapq.heappop(queue)
            if node in paths or (node == source and path):
                continue
            paths[node] = path
            for segment in self.leaving.get(node, ()):
                if segment.destination not in paths:
                    far_us = delay_us + max(segment.delay_us, HOP_DELAY_US)
                    heapq.heappush(queue, (far_us, hops + 1, segment.destination, (*path, segment)))
        paths.pop(source, None)
        return paths


def _sum(parts: list[float]) -> float:
    return float(sum(parts))


def _survival(parts: list[float]) -> float:
    return float(1 - np.prod([1 - min(max(part, 0.0), 1.0) for part in parts]))


# How the figures of a path's segments make up the path's: metric -> (fold, figure that a link states or None).
Fold = Callable[[list[float]], float]
RULES: dict[str, tuple[Fold, Callable[[Segment], float | None]]] = {
    "rtt_us": (_sum, lambda segment: 2 * segment.delay_us or None),
    "rtt_min_us": (_sum, lambda segment: 2 * segment.delay_us or None),
    "jitter_us": (_sum, lambda segment: None),
    "loss_ratio": (_survival, lambda segment: None),
    "available_bandwidth_bps": (min, lambda segment: segment.capacity_bps or None),
    "capacity_bps": (min, lambda segment: segment.capacity_bps or None),
    "throughput_bps": (min, lambda segment: segment.capacity_bps or None),
}


def compose(metric: str, nodes: Sequence[str], values: Floats, network: Network) -> Floats | None:
    """The metric of every pair from its path's segments: measured where they are, else what the link states.

    A pair of neighbours is what its link states, never its own measurement: what is judged against measured pairs must
    not rest on them. NaN where no path leads or a segment is unknown; None for a metric that no rule composes.
    """
    if metric not in RULES or not network.leaving:
        return None
    fold, stated = RULES[metric]
    number = {node: index for index, node in enumerate(nodes)}
    composed = np.full((len(nodes), len(nodes)), np.nan)
    for node, row in number.items():
        for far, path in network.paths_from(node).items():
            if far not in number:
                continue
            parts: list[float | None] = []
            for segment in path:
                known = np.nan
                if len(path) > 1 and segment.source in number and segment.destination in number:
                    known = values[number[segment.source], number[segment.destination]]
                parts.append(float(known) if np.isfinite(known) else stated(segment))
            if all(part is not None for part in parts):
                composed[row, number[far]] = fold([part for part in parts if part is not None])
    return composed


class Composition:
    """Pairs that the topology's links lead to."""

    name = "composition"

    def applies(self, observations: Observations) -> bool:
        """Most pairs must be reached, or the method cannot speak for the metric."""
        composed = observations.composed
        if composed is None or observations.count < 2:
            return False
        pairs = observations.count * (observations.count - 1)
        return int(np.isfinite(composed).sum()) >= pairs / 2

    def complete(self, observations: Observations, seed: int) -> Completion:
        """Pairs without a path get NaN."""
        composed = observations.composed
        if composed is None:
            raise ValueError("there is nothing to compose")
        return Completion(
            np.log(np.maximum(composed, observations.floor)), np.full(composed.shape, SPREAD_PER_HOP, dtype=np.float64)
        )
