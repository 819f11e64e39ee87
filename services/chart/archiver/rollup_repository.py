"""SQL of roll-ups, baselines and changes of paths.

A roll-up is computed anew from the measurements of its minute or hour whenever one of them arrives, late ones included;
quantiles are exact, by the database (percentile_cont). What has to be done stands in `rollup_pending`, written with the
measurements, so that an archiver that is killed leaves no roll-up behind that misses a measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from chart.archiver.change import Series, Verdict
from chart.archiver.repository import Repository
from chart.archiver.times import day_of, moment, time_us
from chart.archiver.windows import SECONDS, Path, Resolution, Window
from chart.common.database import Connection, Pool

TABLES: dict[Resolution, str] = {"minute": "rollup_minute", "hour": "rollup_hour"}
# Minutes in one transaction; each is one look into the index of the measurements.
BATCH = 500

_ROLL = """
WITH taken AS (
    DELETE FROM rollup_pending WHERE (resolution, source, destination, metric, at) IN (
        SELECT resolution, source, destination, metric, at FROM rollup_pending
        WHERE resolution = %(resolution)s ORDER BY at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
    RETURNING source, destination, metric, at
), rolled AS (
    SELECT t.source, t.destination, t.metric, t.at, r.* FROM taken t CROSS JOIN LATERAL (
        SELECT coalesce(max(m.unit), '') AS unit,
            count(*) FILTER (WHERE m.error = '') AS count, count(*) FILTER (WHERE m.error <> '') AS failed,
            avg(m.value) FILTER (WHERE m.error = '') AS mean,
            percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY m.value)
                FILTER (WHERE m.error = '') AS q,
            min(m.value) FILTER (WHERE m.error = '') AS minimum,
            max(m.value) FILTER (WHERE m.error = '') AS maximum,
            coalesce(sum(m.probes_sent), 0) AS sent, coalesce(sum(m.probes_lost), 0) AS lost
        FROM measurement m WHERE m.source = t.source AND m.destination = t.destination AND m.metric = t.metric
            AND m.measured_at >= t.at AND m.measured_at < t.at + make_interval(secs => %(seconds)s)) r
)
INSERT INTO {table} (source, destination, metric, at, unit, count, failed, mean, p50, p95, p99, minimum, maximum,
    probes_sent, probes_lost)
SELECT source, destination, metric, at, unit, count, failed, mean, q[1], q[2], q[3], minimum, maximum, sent, lost
FROM rolled WHERE count + failed > 0
ON CONFLICT (source, destination, metric, at) DO UPDATE SET unit = excluded.unit, count = excluded.count,
    failed = excluded.failed, mean = excluded.mean, p50 = excluded.p50, p95 = excluded.p95, p99 = excluded.p99,
    minimum = excluded.minimum, maximum = excluded.maximum, probes_sent = excluded.probes_sent,
    probes_lost = excluded.probes_lost
RETURNING source, destination, metric, at
"""


class RollupRepository:
    """Roll-ups and what is usual on each path."""

    def __init__(self, pool: Pool, tables: Repository) -> None:
        self._pool = pool
        self._tables = tables

    async def roll(self, resolution: Resolution, limit: int = BATCH) -> list[Window]:
        """Bring the oldest roll-ups that are out of date up to date, in one transaction; returns them."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT DISTINCT date_trunc('day', at) AS day FROM (SELECT at FROM rollup_pending WHERE resolution = %s"
                " ORDER BY at LIMIT %s) AS due",
                (resolution, limit),
            )
            days = {_date(row["day"]) for row in await cursor.fetchall()}
        if not days:
            return []
        await self._tables.ensure_partitions((TABLES[resolution], day) for day in days)
        parameters = {"resolution": resolution, "limit": limit, "seconds": SECONDS[resolution]}
        async with self._pool.connection() as connection, connection.transaction():
            cursor = await connection.execute(_ROLL.format(table=TABLES[resolution]), parameters)
            rows = await cursor.fetchall()
        return [
            Window(resolution, row["source"], row["destination"], row["metric"], time_us(row["at"])) for row in rows
        ]

    async def rollups(
        self, resolution: Resolution, path: Path, from_us: int, until_us: int, limit: int
    ) -> list[dict[str, Any]]:
        """Roll-ups of a path in [from, until), oldest first."""
        query = (
            f"SELECT * FROM {TABLES[resolution]} WHERE source = %s AND destination = %s AND metric = %s"  # noqa: S608
            " AND at >= %s AND at < %s ORDER BY at LIMIT %s"
        )
        async with self._pool.connection() as connection:
            cursor = await connection.execute(query, (*path, moment(from_us), moment(until_us), limit))
            rows = await cursor.fetchall()
        return [{**row, "at_us": time_us(row["at"])} for row in rows]

    # Baselines and changes

    async def medians(self, paths: Sequence[Path], since_us: int) -> list[Series]:
        """The minutes' medians of each path since a time, oldest first; paths without any are left out."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT r.source, r.destination, r.metric, max(r.unit) AS unit,"
                " array_agg(extract(epoch FROM r.at)::float8 ORDER BY r.at) AS at,"
                " array_agg(r.p50 ORDER BY r.at) AS p50"
                " FROM rollup_minute r"
                " JOIN unnest(%s::text[], %s::text[], %s::text[]) AS w (source, destination, metric)"
                " ON r.source = w.source AND r.destination = w.destination AND r.metric = w.metric"
                " WHERE r.at >= %s AND r.count > 0 GROUP BY 1, 2, 3",
                (*(list(names) for names in zip(*paths, strict=True)), moment(since_us)),
            )
            rows = await cursor.fetchall()
        return [
            Series(
                (row["source"], row["destination"], row["metric"]),
                row["unit"],
                tuple(round(at * 1e6) for at in row["at"]),
                tuple(float(value) for value in row["p50"]),
            )
            for row in rows
        ]

    async def judge(self, verdicts: Sequence[Verdict], now_us: int) -> list[Verdict]:
        """Store baselines and changes; returns the verdicts whose change was not known yet."""
        fresh = []
        async with self._pool.connection() as connection, connection.transaction():
            for verdict in sorted(verdicts, key=lambda one: one.path):
                usual = verdict.baseline
                await connection.execute(
                    "INSERT INTO baseline VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
                    " ON CONFLICT (source, destination, metric) DO UPDATE SET unit = excluded.unit,"
                    " median = excluded.median, spread = excluded.spread, minutes = excluded.minutes,"
                    " since = excluded.since, computed_at = excluded.computed_at",
                    (
                        *verdict.path,
                        verdict.unit,
                        usual.median,
                        usual.spread,
                        usual.minutes,
                        moment(usual.since_us),
                        moment(now_us),
                    ),
                )
                if verdict.change is not None and await _note_change(connection, verdict, now_us):
                    fresh.append(verdict)
        return fresh

    async def baselines(self, source: str, destination: str, metric: str) -> list[dict[str, Any]]:
        """What is usual; an empty name means any."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM baseline WHERE (%(s)s = '' OR source = %(s)s) AND (%(d)s = '' OR destination = %(d)s)"
                " AND (%(m)s = '' OR metric = %(m)s) ORDER BY source, destination, metric LIMIT 10000",
                {"s": source, "d": destination, "m": metric},
            )
            rows = await cursor.fetchall()
        return [
            {**row, "since_us": time_us(row["since"]), "computed_at_us": time_us(row["computed_at"])} for row in rows
        ]

    async def changes(
        self, source: str, destination: str, metric: str, from_us: int, until_us: int, limit: int
    ) -> list[dict[str, Any]]:
        """Changes of paths, the newest first."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM path_change WHERE (%(s)s = '' OR source = %(s)s)"
                " AND (%(d)s = '' OR destination = %(d)s) AND (%(m)s = '' OR metric = %(m)s)"
                " AND at >= %(from)s AND at < %(until)s ORDER BY at DESC, source, destination, metric LIMIT %(limit)s",
                {
                    "s": source,
                    "d": destination,
                    "m": metric,
                    "from": moment(from_us),
                    "until": moment(until_us),
                    "limit": limit,
                },
            )
            rows = await cursor.fetchall()
        return [{**row, "at_us": time_us(row["at"])} for row in rows]

    async def forget(self, today: date, keep_days: int) -> None:
        """Drop changes and baselines that nobody refreshed for so long."""
        oldest = datetime.combine(today, datetime.min.time(), UTC).timestamp() - keep_days * 86_400
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM path_change WHERE at < %s", (moment(round(oldest * 1e6)),))
            await connection.execute("DELETE FROM baseline WHERE computed_at < %s", (moment(round(oldest * 1e6)),))


async def _note_change(connection: Connection, verdict: Verdict, now_us: int) -> bool:
    """Whether this change is news: none of the path is known within a few minutes of it (the place found may move)."""
    change = verdict.change
    assert change is not None
    cursor = await connection.execute(
        "SELECT 1 FROM path_change WHERE source = %s AND destination = %s AND metric = %s AND at BETWEEN %s AND %s",
        (*verdict.path, moment(change.at_us - change.slack_us), moment(change.at_us + change.slack_us)),
    )
    if await cursor.fetchone() is not None:
        return False
    await connection.execute(
        "INSERT INTO path_change (source, destination, metric, at, unit, before, after, found_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
        (*verdict.path, moment(change.at_us), verdict.unit, change.before, change.after, moment(now_us)),
    )
    return True


def _date(value: Any) -> date:
    return day_of(time_us(value))
