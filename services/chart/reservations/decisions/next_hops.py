"""Where the kernels of nodes send packets, as their agents report it. Plain data."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from chart.common.ownership import Prefix, own_prefix
from chart.v1 import node_state_pb2


@dataclass(frozen=True, slots=True)
class NextHops:
    """What a node does with packets to a prefix: the links that they may leave by, and interfaces on which no link is
    registered. Neither: they go nowhere.
    """

    link_ids: tuple[str, ...] = ()
    unregistered: tuple[str, ...] = ()


# By prefix, as nodes state them; a prefix that a node was not asked for is not there.
NodeRoutes = Mapping[Prefix, NextHops]


@functools.lru_cache(maxsize=65_536)
def _prefix(text: str) -> Prefix | None:
    return own_prefix(text)


def next_hops_of(state: node_state_pb2.NodeState) -> dict[Prefix, NextHops]:
    """What a node reports; a prefix that cannot be read is as if it were not reported."""
    found: dict[Prefix, NextHops] = {}
    for route in state.routes:
        hops = NextHops(
            tuple(hop.link_id for hop in route.next_hops if hop.link_id),
            tuple(hop.interface for hop in route.next_hops if not hop.link_id),
        )
        for text in route.prefixes:
            prefix = _prefix(text)
            if prefix is not None:
                found[prefix] = hops
    return found
