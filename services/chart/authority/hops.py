"""Next hops of elements, and the reports that taught some of them. Revisions are those of `repository`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chart.common.database import Connection


async def put(
    connection: Connection, element: str, prefix: str, next_element: str, source: str, revision: int,
    *, shim_address: str | None = None, expires_at_us: int | None = None,
) -> bool:  # fmt: skip
    """State the next element towards a prefix; False: what stands there counts more (operator, report, topology)."""
    cursor = await connection.execute(
        "INSERT INTO next_hop (element, prefix, next_element, shim_address, source, revision, expires_at_us)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (element, prefix) DO UPDATE SET"
        " next_element = EXCLUDED.next_element, shim_address = EXCLUDED.shim_address, source = EXCLUDED.source,"
        " revision = EXCLUDED.revision, expires_at_us = EXCLUDED.expires_at_us, removed_at_us = NULL"
        " WHERE next_hop.removed_at_us IS NOT NULL OR EXCLUDED.source = 'operator'"
        " OR next_hop.source = 'topology' OR (next_hop.source = 'report' AND EXCLUDED.source = 'report')"
        " RETURNING element",
        (element, prefix, next_element, shim_address, source, revision, expires_at_us),
    )
    return await cursor.fetchone() is not None


async def remove(connection: Connection, element: str, prefix: str, now_us: int, revision: int) -> bool:
    """Mark a next hop as removed; whether there was one."""
    cursor = await connection.execute(
        "UPDATE next_hop SET removed_at_us = %s, revision = %s WHERE element = %s AND prefix = %s"
        " AND removed_at_us IS NULL RETURNING element",
        (now_us, revision, element, prefix),
    )
    return await cursor.fetchone() is not None


async def of_element(connection: Connection, element: str, since: int) -> list[dict[str, Any]]:
    """Next hops of an element that changed after a revision; removed ones have no next element."""
    cursor = await connection.execute(
        "SELECT prefix::text AS prefix, CASE WHEN removed_at_us IS NULL THEN next_element END AS next_element,"
        " CASE WHEN removed_at_us IS NULL THEN host(shim_address) END AS shim_address, source"
        " FROM next_hop WHERE element = %s AND revision > %s ORDER BY prefix",
        (element, since),
    )
    return await cursor.fetchall()


async def senders_to(connection: Connection, element: str) -> list[str]:
    """Elements that send to this one."""
    cursor = await connection.execute(
        "SELECT DISTINCT element FROM next_hop WHERE next_element = %s AND removed_at_us IS NULL ORDER BY element",
        (element,),
    )
    return [row["element"] for row in await cursor.fetchall()]


@dataclass(frozen=True)
class StandingHop:
    """A next hop that is not removed."""

    next_element: str
    shim_address: str | None
    source: str


async def standing(connection: Connection) -> dict[tuple[str, str], StandingHop]:
    """What stands, by element and prefix."""
    cursor = await connection.execute(
        "SELECT element, prefix::text AS prefix, next_element, host(shim_address) AS shim_address, source"
        " FROM next_hop WHERE removed_at_us IS NULL"
    )
    return {
        (row["element"], row["prefix"]): StandingHop(row["next_element"], row["shim_address"], row["source"])
        for row in await cursor.fetchall()
    }


async def count(connection: Connection, element: str, source: str) -> int:
    """How many next hops of an element came from one source."""
    cursor = await connection.execute(
        "SELECT count(*) AS n FROM next_hop WHERE element = %s AND source = %s AND removed_at_us IS NULL",
        (element, source),
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row["n"])


async def note_report(
    connection: Connection, sender: str, receiver: str, generation: int, sequence: int, now_us: int
) -> bool:
    """Remember that a signal was used as proof; False when it was before."""
    cursor = await connection.execute(
        "INSERT INTO report (sender, receiver, generation, sequence, at_us) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING RETURNING sender",
        (sender, receiver, generation, sequence, now_us),
    )
    return await cursor.fetchone() is not None
