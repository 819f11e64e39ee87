"""SQL of groups of pairs, of series over many pairs, and of history as files."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from chart.archiver.alert_repository import note
from chart.archiver.pairs import MAX_PAIRS, Selection, Steps
from chart.archiver.times import moment
from chart.archiver.windows import Resolution
from chart.common.database import Pool
from chart.v1 import archive_pb2

Pair = tuple[str, str]
Row = dict[str, Any]
# Rows that a download fetches at a time.
FETCH_ROWS = 20_000
MAX_GROUPS = 10_000
# Each pair's steps: roll-ups joined with the pairs that are asked for.
_STEPS = """
SELECT r.source, r.destination, max(r.unit) AS unit, date_bin(%(step)s, r.at, %(from)s) AS at,
    sum(r.mean * r.count) / sum(r.count) AS mean, min(r.minimum) AS low, max(r.maximum) AS high,
    sum(r.count)::bigint AS n
FROM unnest(%(sources)s::text[], %(destinations)s::text[]) AS w (source, destination)
JOIN {table} r ON r.source = w.source AND r.destination = w.destination
WHERE r.metric = %(metric)s AND r.at >= %(from)s AND r.at < %(until)s AND r.count > 0
GROUP BY 1, 2, 4
"""
_BY_PAIR = """
SELECT source AS source_node, destination AS destination_node, max(unit) AS unit,
    array_agg((extract(epoch FROM at) * 1000000)::bigint ORDER BY at) AS at_us, array_agg(mean ORDER BY at) AS mean,
    array_agg(low ORDER BY at) AS minimum, array_agg(high ORDER BY at) AS maximum, array_agg(n ORDER BY at) AS count
FROM ({steps}) AS steps GROUP BY 1, 2 ORDER BY 1, 2
"""
_TOGETHER = """
SELECT max(unit) AS unit, array_agg((extract(epoch FROM at) * 1000000)::bigint ORDER BY at) AS at_us,
    array_agg(mean ORDER BY at) AS mean, array_agg(low ORDER BY at) AS minimum, array_agg(high ORDER BY at) AS maximum,
    array_agg(n ORDER BY at) AS count, array_agg(q[1] ORDER BY at) AS p50, array_agg(q[2] ORDER BY at) AS p95,
    array_agg(pairs ORDER BY at) AS pairs
FROM (
    SELECT at, max(unit) AS unit, sum(mean * n) / sum(n) AS mean, min(low) AS low, max(high) AS high,
        sum(n)::bigint AS n, percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY mean) AS q, count(*) AS pairs
    FROM ({steps}) AS steps GROUP BY at) AS grouped
"""
_MEASURED = """
SELECT source, destination FROM latest_measurement WHERE metric = %(metric)s AND (
    (%(crossed)s AND (cardinality(%(sources)s::text[]) = 0 OR source = ANY(%(sources)s))
        AND (cardinality(%(destinations)s::text[]) = 0 OR destination = ANY(%(destinations)s)))
    OR (source, destination) IN (SELECT * FROM unnest(%(first)s::text[], %(second)s::text[])))
ORDER BY source, destination LIMIT %(limit)s
"""
_RAW = (
    "SELECT source, destination, metric, measured_at AS at, id, sensor, value, unit, probes_sent, probes_lost, error"
    " FROM measurement WHERE source = %s AND destination = %s AND metric = %s AND measured_at < %s"
    " AND (measured_at, id) > (%s, %s) ORDER BY measured_at, id LIMIT %s"
)


class PairRepository:
    """Groups and what was measured between their pairs."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def groups(self, identity: str = "") -> list[archive_pb2.PairGroup]:
        """All by id, or one."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT revision, body FROM pair_group WHERE %(id)s = '' OR id = %(id)s ORDER BY id LIMIT %(limit)s",
                {"id": identity, "limit": MAX_GROUPS},
            )
            return [_group(row) for row in await cursor.fetchall()]

    async def put(
        self, group: archive_pb2.PairGroup, expected: int, actor: str
    ) -> tuple[archive_pb2.PairGroup, bool, int | None]:
        """Store a group; returns it, whether it is new, and the stored revision when another was expected."""
        key = int.from_bytes(hashlib.sha256(b"pair_group" + group.id.encode()).digest()[:8], signed=True)
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
            cursor = await connection.execute("SELECT revision, body FROM pair_group WHERE id = %s", (group.id,))
            row = await cursor.fetchone()
            before = _group(row) if row is not None else None
            if expected and (before is None or before.revision != expected):
                return group, False, before.revision if before is not None else 0
            if before is not None:
                # Whoever changes it, it stays its owner's.
                group.owner = before.owner
            body = group.SerializeToString(deterministic=True)
            cursor = await connection.execute(
                "INSERT INTO pair_group (id, revision, owner, body) VALUES (%s, nextval('revision'), %s, %s)"
                " ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, body = excluded.body,"
                " updated_at = now() RETURNING revision",
                (group.id, group.owner, body),
            )
            stored = await cursor.fetchone()
            assert stored is not None
            group.revision = int(stored["revision"])
            await note(connection, actor, "pair_group.put", group.id, {"pairs": len(group.pairs)})
        return group, before is None, None

    async def delete(self, identity: str, actor: str) -> bool:
        """Remove a group. False: there is none."""
        async with self._pool.connection() as connection, connection.transaction():
            cursor = await connection.execute("DELETE FROM pair_group WHERE id = %s", (identity,))
            if not cursor.rowcount:
                return False
            await note(connection, actor, "pair_group.delete", identity, {})
        return True

    async def measured(self, selection: Selection, metric: str) -> list[Pair]:
        """The pairs of a selection that were ever measured, at most one more than an answer may have."""
        first, second = zip(*selection.single, strict=True) if selection.single else ((), ())
        parameters = {
            "metric": metric,
            "crossed": selection.crossed,
            "sources": list(selection.sources),
            "destinations": list(selection.destinations),
            "first": list(first),
            "second": list(second),
            "limit": MAX_PAIRS + 1,
        }
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_MEASURED, parameters)
            return [(row["source"], row["destination"]) for row in await cursor.fetchall()]

    async def series(self, pairs: Sequence[Pair], metric: str, steps: Steps, *, by_pair: bool) -> list[Row]:
        """One row of lists for each pair, or one for all of them; none where there is nothing."""
        if not pairs:
            return []
        sources, destinations = zip(*pairs, strict=True)
        inner = _STEPS.format(table=f"rollup_{steps.resolution}")
        parameters = {
            "sources": list(sources),
            "destinations": list(destinations),
            "metric": metric,
            "from": moment(steps.from_us),
            "until": moment(steps.until_us),
            "step": moment(steps.step_us) - moment(0),
        }
        async with self._pool.connection() as connection:
            cursor = await connection.execute((_BY_PAIR if by_pair else _TOGETHER).format(steps=inner), parameters)
            return [row for row in await cursor.fetchall() if row["at_us"]]

    async def history(
        self, pairs: Sequence[Pair], metric: str, from_us: int, until_us: int, resolution: Resolution | None
    ) -> AsyncIterator[Sequence[Row]]:
        """Results (None) or roll-ups of pairs in [from, until), pair by pair, oldest first, a page at a time."""
        rolled = (
            f"SELECT *, '' AS id FROM rollup_{resolution} WHERE source = %s AND destination = %s AND metric = %s"  # noqa: S608
            " AND at < %s AND (at, '') > (%s, %s) ORDER BY at LIMIT %s"
        )
        waiting: list[Row] = []
        for pair in pairs:
            after_us, after_id = moment(from_us - 1), "~"
            while True:
                async with self._pool.connection() as connection:
                    cursor = await connection.execute(
                        _RAW if resolution is None else rolled,
                        (*pair, metric, moment(until_us), after_us, after_id, FETCH_ROWS),
                    )
                    page = await cursor.fetchall()
                waiting += page
                if len(waiting) >= FETCH_ROWS:
                    yield waiting
                    waiting = []
                if len(page) < FETCH_ROWS:
                    break
                after_us, after_id = page[-1]["at"], page[-1]["id"]
        if waiting:
            yield waiting


def _group(row: Row) -> archive_pb2.PairGroup:
    group = archive_pb2.PairGroup.FromString(bytes(row["body"]))
    group.revision = int(row["revision"])
    return group
