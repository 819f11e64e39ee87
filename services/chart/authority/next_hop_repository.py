"""Next hops: for each element and destination prefix the next element, who said so, and the signals that proved it.

What operators say counts more than what reports proved, and that more than what follows from the topology.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from chart.common.database import Connection

_COLUMNS = (
    "prefix::text AS prefix, CASE WHEN removed_at_us IS NULL THEN next_element END AS next_element, source,"
    " host(shim_address) AS shim_address"
)


class Standing(NamedTuple):
    """What the table says of an element and a prefix."""

    next_element: str
    source: str
    shim_address: str | None


async def put(
    connection: Connection, element: str, prefix: str, next_element: str, source: str, revision: int,
    *, expires_at_us: int | None = None, shim_address: str | None = None,
) -> bool:  # fmt: skip
    """State the next element towards a prefix; False: what stands there counts more (operator, report, topology)."""
    cursor = await connection.execute(
        "INSERT INTO next_hop (element, prefix, next_element, source, revision, expires_at_us, shim_address)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (element, prefix) DO UPDATE SET"
        " next_element = EXCLUDED.next_element, source = EXCLUDED.source, revision = EXCLUDED.revision,"
        " expires_at_us = EXCLUDED.expires_at_us, shim_address = EXCLUDED.shim_address, removed_at_us = NULL"
        " WHERE next_hop.removed_at_us IS NOT NULL OR EXCLUDED.source = 'operator'"
        " OR next_hop.source = 'topology' OR (next_hop.source = 'report' AND EXCLUDED.source = 'report')"
        " RETURNING element",
        (element, prefix, next_element, source, revision, expires_at_us, shim_address),
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


async def changed(connection: Connection, element: str, since: int) -> list[dict[str, Any]]:
    """Next hops of an element that changed after a revision; removed ones have no next element."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS} FROM next_hop WHERE element = %s AND revision > %s ORDER BY prefix",  # noqa: S608 - constant
        (element, since),
    )
    return await cursor.fetchall()


async def towards(connection: Connection, element: str, destination: str) -> dict[str, Any] | None:
    """The next hop of an element towards an address: of the longest prefix that holds it."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS} FROM next_hop WHERE element = %s AND prefix >>= %s::inet"  # noqa: S608 - constant
        " AND removed_at_us IS NULL ORDER BY masklen(prefix) DESC LIMIT 1",
        (element, destination),
    )
    return await cursor.fetchone()


async def entries(connection: Connection, element: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    """Everything that stands, or what stands for one element."""
    cursor = await connection.execute(
        f"SELECT element, {_COLUMNS}, expires_at_us FROM next_hop WHERE removed_at_us IS NULL"  # noqa: S608 - constant
        " AND (%(element)s::text IS NULL OR element = %(element)s) ORDER BY element, next_hop.prefix"
        " LIMIT %(limit)s",
        {"element": element, "limit": limit},
    )
    return await cursor.fetchall()


async def senders_to(connection: Connection, element: str) -> list[str]:
    """Elements that send to this one."""
    cursor = await connection.execute(
        "SELECT DISTINCT element FROM next_hop WHERE next_element = %s AND removed_at_us IS NULL ORDER BY element",
        (element,),
    )
    return [row["element"] for row in await cursor.fetchall()]


async def standing(connection: Connection) -> dict[tuple[str, str], Standing]:
    """What stands, by element and prefix."""
    return {
        (row["element"], row["prefix"]): Standing(row["next_element"], row["source"], row["shim_address"])
        for row in await entries(connection)
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
