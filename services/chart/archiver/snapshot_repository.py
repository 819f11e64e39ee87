"""SQL of snapshots: all pairs at one time, measured values first, estimates where nothing was measured."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from ulid import ULID

from chart.archiver.times import moment, time_us
from chart.common.database import Pool

LATEST = "latest"
# Rows that a download fetches at a time.
FETCH_ROWS = 20_000
_LOCK = 0x534E4150
_COLUMNS = "source, destination, metric, value, unit, method, interval_low, interval_high, at"


@dataclass(frozen=True)
class Snapshot:
    """What a snapshot is; its rows are read apart."""

    id: str
    taken_at_us: int
    reason: str
    metrics: tuple[str, ...]
    nodes: int
    rows: int


Row = dict[str, Any]


class SnapshotRepository:
    """Snapshots of all pairs."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def take(
        self, now_us: int, reason: str, age_us: int, keep: int, *, unless_since_us: int = 0
    ) -> Snapshot | None:
        """Take one and drop the oldest beyond those kept; None when another was taken since that time."""
        identity = str(ULID())
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if unless_since_us:
                cursor = await connection.execute(
                    "SELECT 1 FROM snapshot WHERE taken_at > %s LIMIT 1", (moment(unless_since_us),)
                )
                if await cursor.fetchone() is not None:
                    return None
            await connection.execute(
                "INSERT INTO snapshot VALUES (%s, %s, %s, '{}', 0, 0)", (identity, moment(now_us), reason)
            )
            await connection.execute(
                "INSERT INTO snapshot_row SELECT %(id)s, source, destination, metric, coalesce(m.value, e.value),"
                " coalesce(m.unit, e.unit), CASE WHEN m.value IS NULL THEN e.method ELSE 'measured' END,"
                " CASE WHEN m.value IS NULL THEN e.interval_low END,"
                " CASE WHEN m.value IS NULL THEN e.interval_high END, coalesce(m.measured_at, e.estimated_at)"
                " FROM (SELECT * FROM latest_measurement WHERE error = '' AND measured_at >= %(oldest)s) m"
                " FULL JOIN latest_estimate e USING (source, destination, metric)",
                {"id": identity, "oldest": moment(now_us - age_us)},
            )
            cursor = await connection.execute(
                "UPDATE snapshot SET (metrics, rows, nodes) = (SELECT coalesce(array_agg(DISTINCT metric ORDER BY"
                " metric), '{}'), count(*), (SELECT count(*) FROM (SELECT source FROM snapshot_row WHERE"
                " snapshot_id = %(id)s UNION SELECT destination FROM snapshot_row WHERE snapshot_id = %(id)s) AS n)"
                " FROM snapshot_row WHERE snapshot_id = %(id)s) WHERE id = %(id)s RETURNING *",
                {"id": identity},
            )
            row = await cursor.fetchone()
            assert row is not None
            await connection.execute(
                "DELETE FROM snapshot WHERE id IN (SELECT id FROM snapshot ORDER BY taken_at DESC, id DESC OFFSET %s)",
                (keep,),
            )
        return _snapshot(row)

    async def listing(self) -> list[Snapshot]:
        """The newest first."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute("SELECT * FROM snapshot ORDER BY taken_at DESC, id DESC LIMIT 10000")
            return [_snapshot(row) for row in await cursor.fetchall()]

    async def get(self, identity: str) -> Snapshot | None:
        """One by its id or "latest"; None when there is none."""
        async with self._pool.connection() as connection:
            if identity == LATEST:
                cursor = await connection.execute("SELECT * FROM snapshot ORDER BY taken_at DESC, id DESC LIMIT 1")
            else:
                cursor = await connection.execute("SELECT * FROM snapshot WHERE id = %s", (identity,))
            row = await cursor.fetchone()
        return _snapshot(row) if row is not None else None

    async def rows(self, identity: str, metric: str, after: tuple[str, str, str], limit: int) -> list[Row]:
        """Rows in order of source, destination, metric, after that one."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                f"SELECT {_COLUMNS} FROM snapshot_row WHERE snapshot_id = %s AND (%s = '' OR metric = %s)"  # noqa: S608
                " AND (source, destination, metric) > (%s, %s, %s) ORDER BY source, destination, metric LIMIT %s",
                (identity, metric, metric, *after, limit),
            )
            return [{**row, "at_us": time_us(row["at"])} for row in await cursor.fetchall()]

    async def pages(self, identity: str, metric: str) -> AsyncIterator[Sequence[Row]]:
        """All rows, a page at a time; a snapshot never changes."""
        after = ("", "", "")
        while page := await self.rows(identity, metric, after, FETCH_ROWS):
            yield page
            last = page[-1]
            after = (last["source"], last["destination"], last["metric"])


def _snapshot(row: Row) -> Snapshot:
    return Snapshot(
        row["id"], time_us(row["taken_at"]), row["reason"], tuple(row["metrics"]), row["nodes"], row["rows"]
    )
