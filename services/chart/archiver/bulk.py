"""Rows by the thousand: one statement for each table and batch, however many rows there are.

Facts are copied into a temporary table and from there into theirs, which costs a fifth of single inserts; what stands
once for each path is given to one statement as arrays. Rows are in one order for all archivers, so that two of them
cannot wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import sql

from chart.archiver.times import moment
from chart.common.database import Connection

# What names a fact: a record that is delivered again meets it and changes nothing.
_KEYS = {
    "measurement": ("id", "measured_at"),
    "estimate": ("source", "destination", "metric", "estimated_at"),
    "link_load": ("link_id", "at"),
    "link_rate": ("link_id", "issued_at"),
    "grant_status": ("request_id", "node", "at", "stream_offset"),
    "flow_grant": ("request_id", "at", "stream_offset"),
    "audit": ("id", "at"),
    "overlay_event": ("node", "agent_instance", "sequence", "at"),
    "path_table": ("node", "at", "stream_offset"),
}
_JSON_COLUMNS = frozenset({"detail", "body"})
# Below this a table of its own costs more than it saves.
_COPY_FROM_ROWS = 20


async def insert(connection: Connection, table: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Insert in the caller's transaction; a row that is there already stays (link loads: the fuller one wins)."""
    names = list(entries[0])
    columns = [name.removesuffix("_us") if name.endswith("_us") else name for name in names]
    values = [
        tuple(_time_or_none(entry[name]) if name.endswith("_us") else entry[name] for name in names)
        for entry in entries
    ]
    if table == "link_load" or len(entries) < _COPY_FROM_ROWS:
        await _insert_each(connection, table, columns, values)
    else:
        await _copy(connection, table, columns, values)


async def _insert_each(
    connection: Connection, table: str, columns: Sequence[str], values: Sequence[tuple[Any, ...]]
) -> None:
    conflict: sql.Composable = sql.SQL("DO NOTHING")
    if table == "link_load":
        changed = [column for column in columns if column not in _KEYS[table]]
        conflict = sql.SQL("DO UPDATE SET {} WHERE excluded.samples > link_load.samples").format(
            sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in changed)
        )
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.SQL("%s::jsonb" if column in _JSON_COLUMNS else "%s") for column in columns),
        sql.SQL(", ").join(map(sql.Identifier, _KEYS[table])),
        conflict,
    )
    async with connection.cursor() as cursor:
        await cursor.executemany(statement, values)


async def _copy(connection: Connection, table: str, columns: Sequence[str], values: Sequence[tuple[Any, ...]]) -> None:
    incoming = sql.Identifier(f"incoming_{table}")
    listed = sql.SQL(", ").join(map(sql.Identifier, columns))
    async with connection.cursor() as cursor:
        # Of this connection; empty after each transaction.
        await cursor.execute(
            sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} (LIKE {}) ON COMMIT DELETE ROWS").format(
                incoming, sql.Identifier(table)
            )
        )
        async with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(incoming, listed)) as copy:
            for row in values:
                await copy.write_row(row)
        await cursor.execute(
            sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO NOTHING").format(
                sql.Identifier(table), listed, listed, incoming, sql.SQL(", ").join(map(sql.Identifier, _KEYS[table]))
            )
        )


async def update_latest(connection: Connection, entries: Sequence[Mapping[str, Any]]) -> None:
    """The newest measurement of each path and metric."""
    newest: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for entry in entries:
        key = (entry["source"], entry["destination"], entry["metric"])
        if key not in newest or entry["measured_at_us"] >= newest[key]["measured_at_us"]:
            newest[key] = entry
    rows = [
        (
            *key,
            entry["id"],
            entry["sensor"],
            entry["value"],
            entry["unit"],
            moment(entry["measured_at_us"]),
            entry["error"],
        )
        for key, entry in sorted(newest.items())
    ]
    await connection.execute(
        "INSERT INTO latest_measurement (source, destination, metric, id, sensor, value, unit, measured_at, error)"
        " SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::float8[], %s::text[],"
        " %s::timestamptz[], %s::text[]) ON CONFLICT (source, destination, metric) DO UPDATE SET"
        " id = excluded.id, sensor = excluded.sensor, value = excluded.value, unit = excluded.unit,"
        " measured_at = excluded.measured_at, error = excluded.error"
        " WHERE excluded.measured_at >= latest_measurement.measured_at",
        columns_of(rows),
    )


async def update_latest_estimates(
    connection: Connection, entries: Sequence[Mapping[str, Any]], gone: Sequence[Mapping[str, Any]]
) -> None:
    """What is estimated now. A record that is read again after a later one changes nothing: the later time wins."""
    newest: dict[tuple[str, str, str], tuple[int, Mapping[str, Any] | None]] = {}
    for entry, value in (*((one, one) for one in entries), *((one, None) for one in gone)):
        key = (entry["source"], entry["destination"], entry["metric"])
        if key not in newest or entry["estimated_at_us"] >= newest[key][0]:
            newest[key] = (entry["estimated_at_us"], value)
    ordered = sorted(newest.items(), key=lambda item: item[0])
    there = [
        (
            *key,
            value["value"],
            value["unit"],
            value["method"],
            value["interval_low"],
            value["interval_high"],
            moment(at_us),
        )
        for key, (at_us, value) in ordered
        if value is not None
    ]
    if there:
        await connection.execute(
            "INSERT INTO latest_estimate (source, destination, metric, value, unit, method, interval_low,"
            " interval_high, estimated_at) SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::float8[],"
            " %s::text[], %s::text[], %s::float8[], %s::float8[], %s::timestamptz[])"
            " ON CONFLICT (source, destination, metric) DO UPDATE SET value = excluded.value, unit = excluded.unit,"
            " method = excluded.method, interval_low = excluded.interval_low, interval_high = excluded.interval_high,"
            " estimated_at = excluded.estimated_at WHERE excluded.estimated_at >= latest_estimate.estimated_at",
            columns_of(there),
        )
    left = [(*key, moment(at_us)) for key, (at_us, value) in ordered if value is None]
    if left:
        await connection.execute(
            "DELETE FROM latest_estimate l USING unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[])"
            " AS g (source, destination, metric, at) WHERE l.source = g.source AND l.destination = g.destination"
            " AND l.metric = g.metric AND l.estimated_at <= g.at",
            columns_of(left),
        )


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as columns, for `unnest`; there is at least one row."""
    return [list(column) for column in zip(*rows, strict=True)]


def _time_or_none(at_us: int | None) -> datetime | None:
    return None if at_us is None else moment(at_us)
