"""Capacities that operators leave to the interfaces: what agents report of their links becomes the links' capacity.

A link that is stated without a capacity has the one that its node knows by itself (agent's command line, else the speed
of the interface); until the node has reported one it has none, and no path leads over it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import psycopg
import structlog

from chart.common.streams import Broker
from chart.v1.node_state_pb2 import NodeState

NODE_STATE = "chart.node-state.v1"

_log = structlog.get_logger("chart.registry")


async def follow(broker: Broker, take: Callable[[str, int], Awaitable[None]]) -> None:
    """Hand every capacity that a node reports of its own links to ``take`` (link id, bits per second), for ever."""
    state = await broker.compacted(NODE_STATE)
    try:
        async for node, value in state.subscribe_changes(with_current=True):
            if not isinstance(value, NodeState):
                continue
            for interface in value.interfaces:
                # A node speaks for itself only.
                if not interface.own_capacity_bps or not interface.link_id.startswith(f"{node}:"):
                    continue
                try:
                    await take(interface.link_id, interface.own_capacity_bps)
                except psycopg.Error as error:
                    # The node reports it again within half a minute.
                    _log.warning("capacity of a link not stored", link=interface.link_id, reason=str(error))
    finally:
        await state.close()
