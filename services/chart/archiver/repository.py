"""All SQL of the archiver: idempotent inserts, partitions by day, series.

Works on plain PostgreSQL (native range partitions) and on hypertables of TimescaleDB; which one it is, the migration
decided and `open` finds out. Minutes of link loads are a continuous aggregate or a table of ours
(chart.archiver.minutes); questions ask `link_minute` either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import structlog
from psycopg import sql

from chart.archiver import bulk, minutes, overlay_repository, windows
from chart.archiver.times import day_of, moment, time_us
from chart.common.database import Pool

# Any number, the same for all archivers: one at a time creates and drops partitions.
_LOCK = 0x41524348

TIME_COLUMNS = {
    "measurement": "measured_at",
    "estimate": "estimated_at",
    "link_load": "at",
    "link_rate": "issued_at",
    "grant_status": "at",
    "flow_grant": "at",
    "audit": "at",
    "rollup_minute": "at",
    "rollup_hour": "at",
    "overlay_event": "at",
    "path_table": "at",
}

_log = structlog.get_logger("chart.archiver.repository")


@dataclass(frozen=True)
class Sample:
    """One point of a series; ``weight`` counts what it stands for."""

    at_us: int
    value: float
    minimum: float
    maximum: float
    weight: int = 1


def partition_name(table: str, day: date) -> str:
    """Name of the partition of a day."""
    return f"{table}_p{day:%Y%m%d}"


class Repository:
    """The archiver's tables."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._partitioned: frozenset[str] = frozenset()
        self._known: set[tuple[str, date]] = set()
        self._stores_minutes = False

    @property
    def storage(self) -> str:
        """How history is kept, in a word or two."""
        if self._partitioned:
            return "partitions of PostgreSQL, roll-ups by the archiver"
        if self._stores_minutes:
            return "hypertables of TimescaleDB, roll-ups by the archiver"
        return "hypertables and continuous aggregates of TimescaleDB"

    async def open(self) -> None:
        """Find out how the tables are stored.

        Raises:
            RuntimeError: they are not there.
        """
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT relname, relkind FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
                " AND relname = ANY(%s)",
                ([*TIME_COLUMNS, minutes.STORED],),
            )
            kinds = {str(row["relname"]): _character(row["relkind"]) for row in await cursor.fetchall()}
        missing = TIME_COLUMNS.keys() - kinds.keys()
        if missing:
            msg = f"tables {', '.join(sorted(missing))} are missing: run `chart platform migrate`"
            raise RuntimeError(msg)
        self._partitioned = frozenset(name for name, kind in kinds.items() if kind == "p")
        self._stores_minutes = minutes.STORED in kinds
        _log.info("history", storage=self.storage)

    # Writing

    async def insert(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Insert in one transaction; a row that is there already stays as it is (link loads: the fuller one wins)."""
        by_table: dict[str, list[Mapping[str, Any]]] = {}
        for table, row in rows:
            by_table.setdefault(table, []).append(row)
        gone = by_table.pop("estimate_gone", [])
        stored = ((table, row) for table, entries in by_table.items() for row in entries)
        await self.ensure_partitions({(table, day_of(row[f"{TIME_COLUMNS[table]}_us"])) for table, row in stored})
        async with self._pool.connection() as connection, connection.transaction():
            for table, entries in sorted(by_table.items()):
                await bulk.insert(connection, table, entries)
            if "link_load" in by_table and self._stores_minutes:
                await minutes.mark(connection, by_table["link_load"])
            if "measurement" in by_table:
                await bulk.update_latest(connection, by_table["measurement"])
                await windows.mark(connection, by_table["measurement"])
            if "estimate" in by_table or gone:
                await bulk.update_latest_estimates(connection, by_table.get("estimate", []), gone)

    async def ensure_partitions(self, wanted: Iterable[tuple[str, date]]) -> None:
        """Create the partitions of these tables and days that are missing."""
        missing = [entry for entry in wanted if entry not in self._known and entry[0] in self._partitioned]
        if not missing:
            return
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            for table, day in sorted(missing):
                name = partition_name(table, day)
                cursor = await connection.execute("SELECT to_regclass(%s) AS known", (name,))
                row = await cursor.fetchone()
                if row is None or row["known"] is None:
                    await connection.execute(
                        sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})").format(
                            sql.Identifier(name),
                            sql.Identifier(table),
                            sql.Literal(f"{day} 00:00:00+00"),
                            sql.Literal(f"{day + timedelta(days=1)} 00:00:00+00"),
                        )
                    )
                    _log.info("created a partition", table=table, day=str(day))
        self._known.update(missing)

    async def maintain(self, today: date, retention_days: Mapping[str, int], ahead_days: int = 2) -> list[str]:
        """Create the partitions of the coming days, drop those older than the retention; returns what was dropped."""
        days = [today + timedelta(days=number) for number in range(ahead_days + 1)]
        tables = [*TIME_COLUMNS, minutes.STORED]
        await self.ensure_partitions((table, day) for table in tables for day in days)
        dropped = []
        for name, keep_days in retention_days.items():
            oldest = today - timedelta(days=keep_days)
            table = minutes.STORED if name == "link_minute" and self._stores_minutes else name
            if table in self._partitioned:
                dropped += await self._drop_before(table, oldest)
            else:
                async with self._pool.connection() as connection:
                    cursor = await connection.execute(
                        "SELECT drop_chunks(%s::regclass, older_than => %s::timestamptz) AS n",
                        (table, _midnight(oldest)),
                    )
                    dropped += [str(row["n"]) for row in await cursor.fetchall()]
        if "overlay_event" in retention_days:
            async with self._pool.connection() as connection:
                oldest = today - timedelta(days=retention_days["overlay_event"])
                await overlay_repository.prune(connection, _midnight(oldest))
        return dropped

    async def _drop_before(self, table: str, oldest: date) -> list[str]:
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            cursor = await connection.execute(
                "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
                " WHERE i.inhparent = %s::regclass AND c.relname < %s AND c.relname LIKE %s",
                (table, partition_name(table, oldest), f"{table}\\_p%"),
            )
            names = [str(row["relname"]) for row in await cursor.fetchall()]
            for name in names:
                await connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        self._known -= {entry for entry in self._known if entry[0] == table and entry[1] < oldest}
        return names

    async def store_minutes(self, now_us: int, limit: int) -> int:
        """Store minutes of link loads that are over and not stored as they are; how many. 0 where the database does."""
        if not self._stores_minutes:
            return 0
        async with self._pool.connection() as connection:
            days = await minutes.days(connection, now_us, limit)
        if not days:
            return 0
        await self.ensure_partitions((minutes.STORED, day) for day in days)
        async with self._pool.connection() as connection, connection.transaction():
            return await minutes.roll(connection, now_us, limit)

    async def recheck_minutes(self, since_us: int) -> None:
        """Compute the minutes since then again, in case somebody wrote loads without noting them."""
        if self._stores_minutes:
            async with self._pool.connection() as connection, connection.transaction():
                await minutes.mark_since(connection, since_us)

    # Reading

    async def measurements(
        self,
        path: windows.Path,
        from_us: int,
        until_us: int,
        step_us: int,
        limit: int,
        rolled: tuple[windows.Resolution, int] | None = None,
    ) -> tuple[list[Sample], str]:
        """Results without failed runs in [from, until) and their unit; averaged into steps unless ``step_us`` is 0.

        With ``rolled`` everything before its time is read from roll-ups, each counted where it begins.
        """
        query = (
            "SELECT measured_at AS at, value AS mean, value AS low, value AS high, 1 AS weight, unit AS unit"
            " FROM measurement WHERE source = %(source)s AND destination = %(destination)s AND metric = %(metric)s"
            " AND error = '' AND measured_at >= %(raw_from)s AND measured_at < %(until)s"
        )
        names = dict(zip(("source", "destination", "metric"), path, strict=True))
        raw_from_us = from_us
        if rolled is not None:
            resolution, raw_from_us = rolled
            query += (
                " UNION ALL SELECT at, mean, minimum, maximum, count, unit"  # noqa: S608 - a table of this package
                f" FROM rollup_{resolution} WHERE source = %(source)s AND destination = %(destination)s"
                " AND metric = %(metric)s AND at >= %(from)s AND at < least(%(until)s, %(raw_from)s) AND count > 0"
            )
        parameters = {**names, "raw_from": moment(max(from_us, raw_from_us))}
        return await self._samples(query, parameters, from_us, until_us, step_us, limit, "sum(weight)::bigint")

    async def link_loads(
        self, link: str, metric: str, from_us: int, until_us: int, step_us: int, limit: int
    ) -> list[Sample]:
        """Loads of a link by second; the minimum is that of the means, the maximum that of the 100 ms samples.

        Steps from `MINUTES_FROM_US` on are made of minutes, each counted where it begins; their weight is in minutes.
        """
        if step_us >= MINUTES_FROM_US:
            table, (mean, low, high) = "link_minute", minutes.columns(metric)
        else:
            table, (mean, high) = "link_load", _LINK_COLUMNS[metric]
            low = mean
        # The names come from tables of this package, never from a caller.
        query = (
            f"SELECT at, {mean} AS mean, {low} AS low, {high} AS high, samples AS weight, '' AS unit"  # noqa: S608
            f" FROM {table} WHERE link_id = %(a)s AND at >= %(from)s AND at < %(until)s"
        )
        samples, _ = await self._samples(query, {"a": link}, from_us, until_us, step_us, limit)
        return samples

    async def _samples(
        self,
        query: str,
        names: Mapping[str, Any],
        from_us: int,
        until_us: int,
        step_us: int,
        limit: int,
        weight: str = "count(*)",
    ) -> tuple[list[Sample], str]:
        parameters = {
            **names,
            "from": moment(from_us),
            "until": moment(until_us),
            "step": timedelta(microseconds=step_us),
            "limit": limit,
        }
        if step_us:
            query = (
                "SELECT date_bin(%(step)s, at, %(from)s) AS at, sum(mean * weight) / sum(weight) AS mean,"  # noqa: S608
                f" min(low) AS low, max(high) AS high, {weight} AS weight, max(unit) AS unit FROM ({query}) AS raw"
                " GROUP BY 1 ORDER BY 1 LIMIT %(limit)s"
            )
        else:
            query += " ORDER BY 1 LIMIT %(limit)s"
        async with self._pool.connection() as connection:
            cursor = await connection.execute(query, parameters)
            rows = await cursor.fetchall()
        samples = [
            Sample(time_us(row["at"]), float(row["mean"]), float(row["low"]), float(row["high"]), row["weight"])
            for row in rows
        ]
        return samples, (str(rows[0]["unit"]) if rows else "")

    async def count_measurements(self, source: str, destination: str, metric: str, from_us: int, until_us: int) -> int:
        """How many results a raw series would have."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT count(*) AS n FROM measurement WHERE source = %s AND destination = %s AND metric = %s"
                " AND error = '' AND measured_at >= %s AND measured_at < %s",
                (source, destination, metric, moment(from_us), moment(until_us)),
            )
            row = await cursor.fetchone()
        assert row is not None
        return int(row["n"])

    async def link_rates(self, link: str, from_us: int, until_us: int, limit: int) -> list[tuple[int, int, float]]:
        """(issued, valid until, available rate) of a link, with the one in force at the start."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT issued_at, valid_until, available_bps FROM link_rate WHERE link_id = %s"
                " AND issued_at >= %s AND issued_at < %s AND valid_until > %s ORDER BY issued_at LIMIT %s",
                (link, moment(from_us - _LEASE_US), moment(until_us), moment(from_us), limit),
            )
            rows = await cursor.fetchall()
        return [(time_us(row["issued_at"]), time_us(row["valid_until"]), float(row["available_bps"])) for row in rows]

    async def grant_statuses(
        self, request: str, from_us: int, until_us: int, limit: int
    ) -> list[tuple[int, str, float, int]]:
        """(at, node, kernel rate, sent bytes) of a request, with what was reported shortly before the start."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT at, node, state, kernel_rate_bps, sent_bytes FROM grant_status WHERE request_id = %s"
                " AND at >= %s AND at < %s ORDER BY at, stream_offset LIMIT %s",
                (request, moment(from_us - _STATUS_US), moment(until_us), limit),
            )
            rows = await cursor.fetchall()
        return [
            (
                time_us(row["at"]),
                str(row["node"]),
                float(row["kernel_rate_bps"]) if row["state"] == "APPLIED" else 0.0,
                int(row["sent_bytes"]),
            )
            for row in rows
        ]

    async def latest(self, source: str, destination: str, metric: str) -> list[dict[str, Any]]:
        """The newest result of each path and metric; an empty name means any."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM latest_measurement WHERE (%(s)s = '' OR source = %(s)s)"
                " AND (%(d)s = '' OR destination = %(d)s) AND (%(m)s = '' OR metric = %(m)s)"
                " ORDER BY source, destination, metric LIMIT 10000",
                {"s": source, "d": destination, "m": metric},
            )
            rows = await cursor.fetchall()
        return [{**row, "measured_at_us": time_us(row["measured_at"])} for row in rows]


# Coarser steps of link loads are answered from minutes.
MINUTES_FROM_US = 600_000_000
# Longest lease of a link rate, and how long a grant's status is taken to hold when no newer one comes.
_LEASE_US = 60_000_000
_STATUS_US = 60_000_000

_LINK_COLUMNS = {
    "sent_bps": ("sent_bps", "sent_max_bps"),
    "explicit_rate_bps": ("explicit_rate_bps", "explicit_rate_max_bps"),
    "legacy_bps": ("legacy_bps", "legacy_max_bps"),
    "queue_bytes": ("queue_bytes", "queue_max_bytes"),
    "dropped_packets": ("dropped_packets", "dropped_packets"),
}


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _character(value: Any) -> str:
    """PostgreSQL's "char" comes as bytes or text."""
    return value.decode() if isinstance(value, bytes) else str(value)
