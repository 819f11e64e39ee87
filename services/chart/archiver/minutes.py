"""Minutes of link loads where TimescaleDB does not keep them: which are out of date, and bringing them up to date.

Loads note their minute in their own transaction, so an archiver that is killed leaves no minute behind that misses one;
the view `link_minute` computes what is noted from the seconds (migrations/archiver, 0003).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from chart.archiver.times import day_of, moment, time_us
from chart.common.database import Connection

MINUTE_US = 60_000_000
STORED = "link_minute_stored"
# A minute is stored when its last second has been written, as a rule: no sooner than this after its end.
QUIET_US = 10_000_000
_LOADS = ("sent_bps", "explicit_rate_bps", "legacy_bps", "queue_bytes", "dropped_packets")


def columns(metric: str) -> tuple[str, str, str]:
    """Mean, least and greatest of a metric in `link_minute`."""
    stem, unit = metric.rsplit("_", 1)
    return metric, f"{stem}_min_{unit}", f"{stem}_max_{unit}"


_COLUMNS = ("samples", *(name for metric in _LOADS for name in columns(metric)))
_ROLL = f"""
WITH taken AS (
    DELETE FROM link_minute_pending WHERE (link_id, at) IN (
        SELECT link_id, at FROM link_minute_pending WHERE at < %(before)s ORDER BY at LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED)
    RETURNING link_id, at
)
INSERT INTO {STORED} (link_id, at, {", ".join(_COLUMNS)})
SELECT m.link_id, m.at, {", ".join(f"m.{name}" for name in _COLUMNS)}
FROM link_minute m JOIN taken t ON t.link_id = m.link_id AND t.at = m.at
ON CONFLICT (link_id, at) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)}
"""  # noqa: S608 - names of this file


async def mark(connection: Connection, entries: Iterable[Mapping[str, Any]]) -> None:
    """Note in the caller's transaction which minutes these loads change.

    A minute that is noted already is locked by the update that does nothing, so that `roll` leaves it until these loads
    are there to be seen.
    """
    changed = sorted({(str(entry["link_id"]), entry["at_us"] // MINUTE_US * MINUTE_US) for entry in entries})
    async with connection.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO link_minute_pending (link_id, at) VALUES (%s, %s)"
            " ON CONFLICT (link_id, at) DO UPDATE SET at = excluded.at WHERE false",
            [(link, moment(at_us)) for link, at_us in changed],
        )


async def mark_since(connection: Connection, since_us: int) -> None:
    """Note every minute since then: an archiver of an earlier version may have written loads without noting them."""
    await connection.execute(
        "INSERT INTO link_minute_pending SELECT DISTINCT link_id, date_bin(INTERVAL '1 minute', at, 'epoch')"
        " FROM link_load WHERE at >= %s ON CONFLICT DO NOTHING",
        (moment(since_us),),
    )


async def days(connection: Connection, now_us: int, limit: int) -> set[date]:
    """Days of the minutes that `roll` would store."""
    cursor = await connection.execute(
        "SELECT at FROM link_minute_pending WHERE at < %s ORDER BY at LIMIT %s",
        (moment(now_us - MINUTE_US - QUIET_US), limit),
    )
    return {day_of(time_us(row["at"])) for row in await cursor.fetchall()}


async def roll(connection: Connection, now_us: int, limit: int) -> int:
    """Store the oldest noted minutes that are over, in the caller's transaction; returns how many."""
    cursor = await connection.execute(_ROLL, {"before": moment(now_us - MINUTE_US - QUIET_US), "limit": limit})
    return cursor.rowcount
