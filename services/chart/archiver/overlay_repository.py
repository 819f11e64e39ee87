"""SQL of the overlay's history: events of links and paths, and the path tables of a time."""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Any

from chart.archiver.times import moment, time_us
from chart.common.database import Connection, Pool
from chart.v1 import archive_pb2, node_state_pb2, path_table_pb2

KIND_PREFIX, CLASS_PREFIX = "OVERLAY_EVENT_KIND_", "OVERLAY_CLASS_"


def packed(table: path_table_pb2.PathTable) -> bytes:
    """A path table for the database: names of links stand in it often, so it shrinks to a tenth."""
    return zlib.compress(table.SerializeToString())


def unpacked(content: bytes) -> path_table_pb2.PathTable:
    """What `packed` made."""
    return path_table_pb2.PathTable.FromString(zlib.decompress(content))


async def prune(connection: Connection, oldest: datetime) -> None:
    """Forget path tables that another one had followed by then, and the last one of who had no part in the overlay."""
    await connection.execute(
        "DELETE FROM path_table p WHERE p.at < %(oldest)s AND (p.content = '' OR EXISTS (SELECT FROM path_table later"
        " WHERE later.node = p.node AND later.at < %(oldest)s"
        " AND (later.at, later.stream_offset) > (p.at, p.stream_offset)))",
        {"oldest": oldest},
    )


class OverlayRepository:
    """Events and path tables."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def events(
        self, node: str, link_id: str, owner: str, of: str, from_us: int, until_us: int, limit: int
    ) -> list[archive_pb2.NodeOverlayEvent]:
        """Events in [from, until), the newest first; an empty name means any. ``of``: links, paths, or both."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM overlay_event WHERE at >= %(from)s AND at < %(until)s AND (%(n)s = '' OR node = %(n)s)"
                " AND (%(l)s = '' OR link_id = %(l)s) AND (%(o)s = '' OR owner = %(o)s)"
                " AND CASE %(of)s WHEN 'links' THEN owner = '' WHEN 'paths' THEN owner <> '' ELSE true END"
                " ORDER BY at DESC, node, sequence DESC LIMIT %(limit)s",
                {
                    "from": moment(from_us),
                    "until": moment(until_us),
                    "n": node,
                    "l": link_id,
                    "o": owner,
                    "of": of,
                    "limit": limit,
                },
            )
            return [_event(row) for row in await cursor.fetchall()]

    async def tables_at(self, at_us: int) -> list[path_table_pb2.PathTable]:
        """The path table of every node that had a part in the overlay then."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT DISTINCT ON (node) content FROM path_table WHERE at <= %s"
                " ORDER BY node, at DESC, stream_offset DESC",
                (moment(at_us),),
            )
            return [unpacked(row["content"]) for row in await cursor.fetchall() if row["content"]]

    async def last_events(self, at_us: int) -> list[archive_pb2.NodeOverlayEvent]:
        """The start of each node's overlay, and until then the last event of each link, path, and path and class, which
        then is the only one of the event.
        """
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "WITH began AS (SELECT node, max(at) AS at FROM overlay_event WHERE kind = 'STARTED' AND at <= %(at)s"
                " GROUP BY node) SELECT DISTINCT ON (e.node, e.link_id, e.owner, e.colour, c.flow_class) e.*,"
                " c.flow_class FROM overlay_event e LEFT JOIN began b ON b.node = e.node"
                " LEFT JOIN LATERAL unnest(e.flow_classes) AS c (flow_class) ON true"
                " WHERE e.at <= %(at)s AND (b.at IS NULL OR e.at >= b.at)"
                " ORDER BY e.node, e.link_id, e.owner, e.colour, c.flow_class, e.at DESC, e.sequence DESC",
                {"at": moment(at_us)},
            )
            rows = await cursor.fetchall()
        return [_event({**row, "flow_classes": [row["flow_class"]] if row["flow_class"] else []}) for row in rows]


def _event(row: dict[str, Any]) -> archive_pb2.NodeOverlayEvent:
    return archive_pb2.NodeOverlayEvent(
        node=row["node"],
        agent_instance=row["agent_instance"],
        event=node_state_pb2.OverlayEvent(
            sequence=int(row["sequence"]),
            at_us=time_us(row["at"]),
            kind=_number(node_state_pb2.OverlayEventKind, KIND_PREFIX, row["kind"]),
            link_id=row["link_id"],
            owner=row["owner"],
            colour=row["colour"],
            flow_classes=[_number(node_state_pb2.OverlayClass, CLASS_PREFIX, one) for one in row["flow_classes"]],
            rtt_us=round(row["rtt_ms"] * 1000),
            exchange_loss=row["exchange_loss"],
            interface_down=row["interface_down"],
        ),
    )


def _number(enum: Any, prefix: str, name: str) -> Any:
    """A value of an enumeration; what only a later version knows is the unspecified one."""
    full = f"{prefix}{name}"
    return enum.Value(full) if full in enum.keys() else 0  # noqa: SIM118 - not a mapping
