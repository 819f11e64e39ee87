"""Leases of links as rows: read with their links locked, and written with the other changes of a transaction."""

from __future__ import annotations

import json
from collections.abc import Collection

from chart.common.database import Connection
from chart.reservations.decisions.in_band import Lease
from chart.reservations.store import rows
from chart.reservations.store.arrays import array
from chart.reservations.store.changes import Changes
from chart.v1 import gr_lease_pb2

GR_LEASE = "chart.gr-lease.v1"


async def current(connection: Connection, link_ids: Collection[str]) -> dict[str, Lease]:
    """The newest leases of links, by link; the links have to be locked."""
    found = await connection.execute("SELECT * FROM lease WHERE link_id = ANY(%s::text[])", (array(link_ids),))
    return {row["link_id"]: rows.lease_of(row) for row in await found.fetchall()}


async def newest(connection: Connection, link_id: str) -> tuple[Lease, int] | None:
    """The newest lease of a link, be it over or not, and what was drawn when it was given, bit/s."""
    found = await connection.execute("SELECT * FROM lease WHERE link_id = %s", (link_id,))
    row = await found.fetchone()
    return None if row is None else (rows.lease_of(row), row["drawn_bps"])


def save(changes: Changes, lease: Lease, drawn_bps: int) -> None:
    """Store a lease and tell the link's node."""
    pieces = json.dumps(lease.pieces)
    row = (lease.link_id, lease.generation, lease.rate_bps, lease.issued_at_us, lease.valid_until_us, pieces)
    changes.lease(lease.link_id, lease.commitments, (*row, drawn_bps))
    record = gr_lease_pb2.GrLease(
        link_id=lease.link_id,
        generation=lease.generation,
        lease_bps=lease.rate_bps,
        valid_from_us=lease.issued_at_us,
        valid_until_us=lease.valid_until_us,
    )
    headers = {"type": record.DESCRIPTOR.full_name}
    changes.publish(GR_LEASE, lease.link_id, record.SerializeToString(), headers)
