"""Requests as a decision needs them: those that it is about, and those that hold something where it looks."""

from __future__ import annotations

from collections.abc import Collection

from chart.common.database import Connection
from chart.reservations.decisions.reservation import Reservation
from chart.reservations.store import rows
from chart.reservations.store.arrays import array

# Above every rank that a request can have.
ANY_RANK = 1 << 14


async def requests(connection: Connection, request_ids: Collection[str], *, lock: bool) -> dict[str, Reservation]:
    """Requests by id, locked if wanted."""
    if not request_ids:
        return {}
    suffix = " FOR UPDATE OF r" if lock else ""
    found = await connection.execute(
        rows.SELECT + " WHERE id = ANY(%s::text[]) ORDER BY id" + suffix, (array(sorted(request_ids)),)
    )
    return {row["id"]: rows.reservation_of(row) for row in await found.fetchall()}


async def holder_ids(
    connection: Connection, link_ids: Collection[str], below_rank: int, start_us: int, end_us: int
) -> list[str]:
    """Requests of a lower rank that have something committed on links in an interval."""
    found = await connection.execute(
        "SELECT DISTINCT request_id FROM commitment WHERE link_id = ANY(%s::text[]) AND rank < %s"
        " AND end_us > %s - 1000000 AND start_us - 1000000 < %s AND request_id NOT LIKE 'lease:%%'",
        (array(sorted(link_ids)), below_rank, start_us, end_us),
    )
    return [row["request_id"] for row in await found.fetchall()]


async def links_of(connection: Connection, request_ids: Collection[str]) -> dict[str, set[str]]:
    """The links of requests: where they have something committed, and their paths."""
    found = await connection.execute(
        "SELECT r.id, r.link_ids, ARRAY(SELECT link_id FROM commitment c WHERE c.request_id = r.id) AS held"
        " FROM rate_request r WHERE id = ANY(%s::text[])",
        (array(sorted(request_ids)),),
    )
    return {row["id"]: {*row["link_ids"], *row["held"]} for row in await found.fetchall()}
