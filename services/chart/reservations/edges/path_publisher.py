"""Keeps the path tables of overlay members as the topology and the nodes' own words have them.

Every replica does it, from the same streams to the same tables; one that finds its tables published writes nothing.
"""

from __future__ import annotations

import asyncio

import structlog
from prometheus_client import Counter, Gauge

from chart.common.broker import Broker
from chart.common.records import StreamError
from chart.common.retries import for_ever
from chart.reservations.decisions.path_tables import path_tables
from chart.reservations.edges.network_view import PATH_TABLE, NetworkView
from chart.v1 import path_table_pb2

RETRY_S = 1.0

MEMBERS = Gauge("chart_reservations_overlay_members", "Nodes that have a path table of the overlay")
PUBLISHED = Counter("chart_reservations_path_tables_total", "Path tables written because something changed")

_log = structlog.get_logger("chart.reservations")


class PathPublisher:
    """Writes the tables that differ."""

    def __init__(self, broker: Broker, view: NetworkView) -> None:
        self._broker = broker
        self._view = view

    async def run(self) -> None:
        """Work until cancelled."""

        def told(error: Exception, _: float) -> None:
            _log.warning("path tables wait for the broker", reason=str(error))

        await for_ever(self._follow, StreamError, told, RETRY_S)

    async def _follow(self) -> None:
        async for _ in self._view.overlay_changes():
            await self.publish()

    async def publish(self) -> None:
        """Write what differs from what is published; a node that is no member any more loses its table.

        Raises:
            StreamError: the broker cannot take it.
        """
        # Of many members it takes a second, and requests do not wait for it.
        wanted = await asyncio.to_thread(path_tables, *self._view.overlay_inputs)
        known = self._view.path_tables
        MEMBERS.set(len(wanted))
        for node, table in wanted.items():
            if node not in known or _differs(known[node], table):
                await self._broker.publish(PATH_TABLE, node, table)
                PUBLISHED.inc()
                _log.info("path table written", node=node, links=len(table.links), owners=len(table.owners))
        for node in sorted(known.keys() - wanted.keys()):
            await self._broker.publish(PATH_TABLE, node, None)
            _log.info("path table withdrawn: the node is no member of the overlay", node=node)


def _differs(one: path_table_pb2.PathTable, other: path_table_pb2.PathTable) -> bool:
    """Whether anything but the generation is different."""
    copy = path_table_pb2.PathTable()
    copy.CopyFrom(one)
    copy.generation = other.generation
    return copy != other
