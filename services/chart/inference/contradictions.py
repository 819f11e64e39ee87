"""Sensors whose results contradict those of the other nodes' sensors. Pure.

Of a metric that is the same in both directions, both ends of a pair measure it. A sensor that is wrong differs from the
other end in most of its pairs; the nodes at their other ends each differ in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Both ends of a pair measure at different times: results this far apart, relative, or by this many floors, still agree.
APART = 0.25
FLOORS = 5.0
# Of different times more than this, in microseconds, they say nothing of each other.
SAME_TIME_US = 600_000_000
# So many pairs of a node are judged at least, and so large a share of them contradicts.
LEAST_PAIRS = 3
MOST_OF_THEM = 0.5


@dataclass(frozen=True)
class Contradiction:
    """A node whose sensor is to be looked at: how many of its pairs were judged and which share of them contradicts."""

    node: str
    judged: int
    share: float


def against_others(results: Mapping[tuple[str, str], tuple[float, int]], floor: float) -> list[Contradiction]:
    """Nodes whose results differ from those in the other direction; for metrics that are the same both ways.

    `results` are values by source and destination with their times in microseconds.
    """
    judged: dict[str, list[bool]] = {}
    for (source, destination), (value, at_us) in results.items():
        back = results.get((destination, source))
        if back is None or source > destination or abs(back[1] - at_us) > SAME_TIME_US:
            continue
        other = back[0]
        apart = abs(value - other) > max(APART * min(value, other), FLOORS * floor)
        for node in (source, destination):
            judged.setdefault(node, []).append(apart)
    return [
        Contradiction(node, len(found), sum(found) / len(found))
        for node, found in sorted(judged.items())
        if len(found) >= LEAST_PAIRS and sum(found) > MOST_OF_THEM * len(found)
    ]
