"""Flows that ask for their rates in band, put together from what every node on their paths reports. Pure.

Brassil et al., The CHART System, section 2: an explanation needs every hop of the exchange, and a node knows its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chart.v1 import node_state_pb2


@dataclass(frozen=True)
class Hop:
    """What one node reports of a flow. ``neighbour``: the node that it signs for, when that one is known."""

    state: node_state_pb2.NodeState
    flow: node_state_pb2.InBandFlow
    neighbour: str | None


@dataclass(frozen=True)
class Flow:
    """One direction of a flow with its hops along the path."""

    source: str
    destination: str
    protocol: int
    hops: list[Hop]


def flows(states: Mapping[str, node_state_pb2.NodeState], wanted: str, limit: int) -> list[Flow]:
    """The flows whose `source-destination` contains ``wanted``, by source; at most ``limit``."""
    elements = {state.element: name for name, state in states.items() if state.element}
    found: dict[tuple[str, str, int], list[Hop]] = {}
    for _, state in sorted(states.items()):
        for flow in state.in_band_flows:
            if wanted in f"{flow.source}-{flow.destination}":
                hop = Hop(state, flow, elements.get(flow.element))
                found.setdefault((flow.source, flow.destination, flow.protocol), []).append(hop)
    return [Flow(*key, along_the_path(hops)) for key, hops in sorted(found.items())[:limit]]


def along_the_path(hops: Iterable[Hop]) -> list[Hop]:
    """The hops from the origin on, each followed by the neighbour it signs for; those that fit nowhere by role."""
    left = sorted(hops, key=lambda hop: ("origin", "transit", "last").index(hop.flow.role))
    ordered: list[Hop] = []
    while left:
        after = ordered[-1].neighbour if ordered and ordered[-1].flow.role != "last" else None
        following = next((hop for hop in left if hop.state.node == after), left[0])
        left.remove(following)
        ordered.append(following)
    return ordered
