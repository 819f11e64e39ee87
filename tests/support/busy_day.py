"""A day of a busy network in the archive of the local platform: a row a second of every link, as agents would say.

    python -m support.busy_day --platform

The rates follow the time of day with noise on it, and one hour is silent: that is drawn as a gap.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from chart.archiver.repository import Repository
from chart.archiver.times import day_of
from chart.common.database import Pool, pool
from chart.common.settings import BaseServiceSettings
from chart_lab.platform.settings import PlatformSettings

_ROWS = """
INSERT INTO link_load
SELECT %(link)s, at, 10, sent, least(sent * 1.2, %(capacity)s), 0.6 * sent, 0.7 * sent, 0.4 * sent, 0.5 * sent,
       20000 * random(), 40000 * random(), 0, 3
FROM (
    SELECT at, %(capacity)s * (0.45 + 0.35 * sin(extract(epoch FROM at) / 86400 * 2 * pi()) + 0.15 * random()) AS sent
    FROM generate_series(%(from)s, %(until)s, interval '1 second') AS at
    WHERE at NOT BETWEEN %(silent)s AND %(silent)s + interval '1 hour'
) AS day
ON CONFLICT DO NOTHING
"""


async def fill(archive: Pool, links: Sequence[str], capacity_bps: float) -> int:
    """Write the day that ends now for these links; returns how many rows that were."""
    until = datetime.fromtimestamp(time.time() - 60, UTC).replace(microsecond=0)
    begin = until - timedelta(days=1)
    repository = Repository(archive)
    await repository.open()
    await repository.ensure_partitions(
        {("link_load", day_of(round(moment.timestamp() * 1e6))) for moment in (begin, until)}
    )
    written = 0
    for link in links:
        values = {
            "link": link,
            "capacity": capacity_bps,
            "from": begin,
            "until": until,
            "silent": begin + timedelta(hours=9),
        }
        async with archive.connection() as connection, connection.transaction():
            written += (await connection.execute(_ROWS, values)).rowcount
    return written


async def _run() -> None:
    links = ("alpha:to-bravo", "bravo:to-charlie", "charlie:to-delta")
    url = PlatformSettings().database_url("archiver")
    async with pool(BaseServiceSettings(database_url=url, database_statement_timeout_ms=60_000)) as archive:
        started = time.monotonic()
        rows = await fill(archive, links, 100e6)
        print(f"{rows} rows of {len(links)} links in {time.monotonic() - started:.1f} s")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="support.busy_day", description=__doc__)
    parser.add_argument("--platform", action="store_true", required=True, help="yes, into the local platform's archive")
    parser.parse_args()
    asyncio.run(_run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
