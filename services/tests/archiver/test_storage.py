"""History on plain PostgreSQL and on TimescaleDB: the same questions get the same answers; retention and compression.

Each test runs on every database that is there and has its name in the test's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from chart.archiver import minutes, windows
from chart.archiver.repository import Repository
from chart.archiver.rollup_repository import RollupRepository
from chart.archiver.settings import ArchiverSettings
from chart.archiver.times import day_of
from chart.common.database import Pool

pytestmark = pytest.mark.contract

SECOND, MINUTE, DAY = 1_000_000, 60_000_000, 86_400_000_000
# Five days before now, at an hour.
NOW_US = 1_750_000_000_000_000 // (3600 * SECOND) * 3600 * SECOND
START_US = NOW_US - 5 * DAY
LINK = "storage:to-b"
STORAGE = {
    "postgresql": "partitions of PostgreSQL, roll-ups by the archiver",
    "timescaledb": "hypertables and continuous aggregates of TimescaleDB",
}


def load(number: int, at_us: int, link: str = LINK, samples: int = 10) -> tuple[str, Mapping[str, Any]]:
    """A second of a link; the figures differ from second to second."""
    return (
        "link_load",
        {
            "link_id": link, "at_us": at_us, "samples": samples,
            "sent_bps": 1000.0 * number, "sent_max_bps": 1500.0 * number,
            "explicit_rate_bps": 10.0 * number, "explicit_rate_max_bps": 20.0 * number,
            "legacy_bps": 1.0, "legacy_max_bps": 2.0, "queue_bytes": 5.0 * (number % 7), "queue_max_bytes": 100.0,
            "dropped_packets": number % 3, "active_flows_max": 4,
        },
    )  # fmt: skip


async def refresh(pool: Pool, repository: Repository, name: str) -> None:
    """What happens within minutes by itself: the archiver's loop, or the job of TimescaleDB."""
    if name == "postgresql":
        assert await repository.store_minutes(NOW_US, 10_000) > 0
        return
    assert await repository.store_minutes(NOW_US, 10_000) == 0
    async with pool.connection() as connection:
        await connection.set_autocommit(True)
        await connection.execute("CALL refresh_continuous_aggregate('link_minute', NULL, NULL)")
        await connection.set_autocommit(False)


async def stored(pool: Pool, table: str, link: str) -> int:
    async with pool.connection() as connection:
        cursor = await connection.execute(f"SELECT count(*) AS n FROM {table} WHERE link_id = %s", (link,))
        row = await cursor.fetchone()
    assert row is not None
    return int(row["n"])


async def test_coarse_steps_have_the_same_answer_stored_or_not(
    database: tuple[str, str], pool: Pool, repository: Repository
) -> None:
    assert repository.storage == STORAGE[database[0]]
    seconds = range(900)
    await repository.insert([load(number, START_US + number * SECOND) for number in seconds])

    async def answer(metric: str) -> list[float]:
        """Time, mean, least and greatest of each step, in one row."""
        points = await repository.link_loads(LINK, metric, START_US, START_US + 1200 * SECOND, 600 * SECOND, 100)
        return [
            figure
            for point in points
            for figure in ((point.at_us - START_US) / SECOND, point.value, point.minimum, point.maximum)
        ]

    sent = [0, 299_500.0, 0.0, 898_500.0, 600, 749_500.0, 600_000.0, 1_348_500.0]
    assert await answer("sent_bps") == pytest.approx(sent)
    assert await answer("dropped_packets") == pytest.approx([0, 1.0, 0.0, 2.0, 600, 1.0, 0.0, 2.0])
    before = [await answer(metric) for metric in ("sent_bps", "queue_bytes", "explicit_rate_bps", "legacy_bps")]
    await refresh(pool, repository, database[0])
    after = [await answer(metric) for metric in ("sent_bps", "queue_bytes", "explicit_rate_bps", "legacy_bps")]
    for old, new in zip(before, after, strict=True):
        assert new == pytest.approx(old)
    # A fuller second that comes late counts, once.
    late = load(600_000, START_US + 30 * SECOND, samples=20)
    await repository.insert([late, late])
    await refresh(pool, repository, database[0])
    changed = (299_500.0 * 6000 - 30_000.0 * 10 + 6e8 * 20) / 6010
    assert (await answer("sent_bps"))[:4] == pytest.approx([0, changed, 0.0, 9e8])
    # Seconds are as they were put.
    fine = await repository.link_loads(LINK, "sent_bps", START_US, START_US + 2 * SECOND, 0, 10)
    assert [point.value for point in fine] == [0.0, 1000.0]


def result(number: int, at_us: int) -> tuple[str, Mapping[str, Any]]:
    """A round-trip time of one path."""
    return (
        "measurement",
        {
            "id": f"storage-{number}", "measured_at_us": at_us, "source": "storage", "destination": "b",
            "sensor": "ping", "metric": "rtt_us", "value": float(number), "unit": "us", "probes_sent": 1,
            "probes_lost": 0, "probe_bytes": 64, "configuration_ids": [], "error": "",
        },
    )  # fmt: skip


# TimescaleDB as WebAssembly serves every connection by one session.
@pytest.mark.parametrize("database", ["postgresql"], indirect=True, scope="module")
async def test_what_is_being_written_is_not_missed_by_a_roll_up(
    database: tuple[str, str], pool: Pool, repository: Repository
) -> None:
    """The minute is noted already when more of it is written, and rolled up before that is committed."""
    link, at_us = "storage:race", START_US + 3600 * SECOND
    await repository.insert([load(1, at_us, link), result(1, at_us)])
    rollups = RollupRepository(pool, repository)
    more = [load(3, at_us + SECOND, link)], [result(3, at_us + SECOND)]
    writing: psycopg.AsyncConnection[dict[str, Any]]
    writing = await psycopg.AsyncConnection.connect(database[1], row_factory=dict_row)
    async with writing:
        await minutes.mark(writing, [values for _, values in more[0]])
        await windows.mark(writing, [values for _, values in more[1]])
        assert await repository.store_minutes(NOW_US, 100) == 0
        assert await rollups.roll("minute") == []
        await writing.rollback()
    await repository.insert([*more[0], *more[1]])
    assert await repository.store_minutes(NOW_US, 100) == 1
    assert [window.at_us for window in await rollups.roll("minute")] == [at_us]
    (rolled,) = await rollups.rollups("minute", ("storage", "b", "rtt_us"), at_us, at_us + MINUTE, 10)
    assert (rolled["count"], rolled["mean"]) == (2, 2.0)


async def test_seconds_go_and_minutes_stay(database: tuple[str, str], pool: Pool, repository: Repository) -> None:
    link = "storage:old"
    old_us = NOW_US - 20 * DAY
    await repository.insert([load(number, old_us + number * SECOND, link) for number in range(120)])
    await repository.insert([load(number, NOW_US - DAY + number * SECOND, link) for number in range(60)])
    await refresh(pool, repository, database[0])
    settings = ArchiverSettings()
    assert await repository.maintain(day_of(NOW_US), settings.retention_days())
    assert await stored(pool, "link_load", link) == 60
    assert await stored(pool, "link_minute", link) == 3
    year = settings.model_copy(update={"link_minute_retention_days": 7}).retention_days()
    await repository.maintain(day_of(NOW_US), year)
    assert await stored(pool, "link_minute", link) == 1


# Plain PostgreSQL does not compress.
@pytest.mark.parametrize("database", ["timescaledb"], indirect=True, scope="module")
async def test_old_chunks_are_compressed_and_still_take_what_is_late(
    database: tuple[str, str], pool: Pool, repository: Repository
) -> None:
    link = "storage:compressed"
    await repository.insert([load(number, START_US - DAY + number * SECOND, link) for number in range(100)])
    async with pool.connection() as connection:
        await connection.set_autocommit(True)
        cursor = await connection.execute(
            "SELECT hypertable_name AS name, job_id AS job FROM timescaledb_information.jobs"
            " WHERE proc_name = 'policy_compression' ORDER BY 1"
        )
        jobs = {str(row["name"]): int(row["job"]) for row in await cursor.fetchall()}
        assert {"measurement", "link_load", "link_rate", "audit"} <= jobs.keys()
        await connection.execute("CALL run_job(%s)", (jobs["link_load"],))
        cursor = await connection.execute(
            "SELECT count(*) AS n FROM timescaledb_information.chunks"
            " WHERE hypertable_name = 'link_load' AND is_compressed"
        )
        row = await cursor.fetchone()
        await connection.set_autocommit(False)
    assert row is not None
    assert row["n"] >= 1
    assert await stored(pool, "link_load", link) == 100
    await repository.insert([load(5, START_US - DAY + 5 * SECOND, link, samples=20)])
    fine = await repository.link_loads(
        link,
        "sent_bps",
        START_US - DAY,
        START_US - DAY + 10 * SECOND,
        round(timedelta(seconds=10) / timedelta(microseconds=1)),
        10,
    )
    assert [point.weight for point in fine] == [10]
    assert await stored(pool, "link_load", link) == 100
