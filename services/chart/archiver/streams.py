"""From the streams into the tables: batches, one transaction each, and only then the commit to the stream.

What is delivered again meets the unique keys and changes nothing; an archiver that is killed loses nothing and stores
nothing twice. A database that is away stops the reading, not the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Gauge, Histogram

from chart.archiver.downsample import Downsampler
from chart.archiver.repository import TIME_COLUMNS, Repository
from chart.archiver.rows import FACTS, LINK_LOAD, OVERLAY, Row, UnarchivableError, rows_of
from chart.archiver.settings import ArchiverSettings
from chart.archiver.times import day_of
from chart.common.clock import Clock
from chart.common.records import Partition, Record
from chart.common.retries import for_ever, until_done
from chart.common.streams import Broker, StreamError, Subscription
from chart.v1 import link_load_pb2

GROUP_FACTS = "archiver"
GROUP_LOADS = "archiver-link-load"
GROUP_OVERLAY = "archiver-overlay"
BACK_OFF_S = (0.2, 10.0)
RETENTION_EVERY_S = 600.0
# A row that claims to be from later than this is a wrong clock.
FUTURE_US = 86_400_000_000

ROWS = Counter("chart_archiver_rows_total", "Rows written, repetitions included", ["table"])
REJECTED = Counter("chart_archiver_rejected_records_total", "Records that no table can hold", ["topic", "reason"])
FAILURES = Counter("chart_archiver_database_failures_total", "Transactions that failed and were tried again")
BATCH = Histogram("chart_archiver_batch_seconds", "Time of one transaction")
DELAY = Gauge("chart_archiver_delay_seconds", "Age of the newest record that was written, or waits to be", ["loop"])

_DATABASE_AWAY = (psycopg.OperationalError, psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests, OSError)

_log = structlog.get_logger("chart.archiver.streams")


@dataclass
class Health:
    """Whether the loops work; for the readiness check."""

    failure: str = ""


class Archiver:
    """The loops of the archiver."""

    def __init__(self, broker: Broker, repository: Repository, clock: Clock, settings: ArchiverSettings) -> None:
        self._broker = broker
        self._repository = repository
        self._clock = clock
        self._settings = settings
        self._retention_days: Mapping[str, int] = settings.retention_days()
        self.health = Health()

    async def check(self) -> None:
        """Health check: the last transaction went through."""
        if self.health.failure:
            raise RuntimeError(self.health.failure)

    # Facts: one row or a few for each record

    async def run_facts(self) -> None:
        """Archive until cancelled."""
        await self._keep(lambda: self._facts(FACTS, GROUP_FACTS, "facts"))

    async def run_overlay(self) -> None:
        """Archive what happens to the overlay until cancelled: by itself, so that streams which this service may not
        read yet (a broker of the version before) stop nothing else.
        """
        await self._keep(lambda: self._facts(OVERLAY, GROUP_OVERLAY, "overlay"))

    async def _facts(self, topics: Sequence[str], group: str, loop: str) -> None:
        async with self._broker.subscribe(list(topics), group=group, start="earliest") as subscription:
            while True:
                records = await self._batch(subscription)
                if not records:
                    continue
                newest_us = records[-1].timestamp_us
                await self._store([row for record in records for row in self._rows(record)], loop, newest_us)
                self._note_delay(loop, newest_us)
                await _commit(subscription, records)

    async def _batch(self, subscription: Subscription) -> list[Record]:
        """Records that come within the wait, at most a batch; empty when none did."""
        records: list[Record] = []
        try:
            async with asyncio.timeout(self._settings.archive_batch_wait_s):
                while len(records) < self._settings.archive_batch_rows:
                    records.append(await anext(aiter(subscription)))
        except TimeoutError:
            pass
        except StopAsyncIteration:
            if not records:
                msg = "the subscription ended"
                raise StreamError(msg) from None
        return records

    def _rows(self, record: Record) -> list[Row]:
        try:
            rows = rows_of(record)
        except UnarchivableError as error:
            REJECTED.labels(topic=record.topic, reason="invalid").inc()
            _log.warning("a record cannot be archived", topic=record.topic, key=record.key, reason=str(error))
            return []
        kept = [row for row in rows if self._timely(row)]
        if len(kept) < len(rows):
            REJECTED.labels(topic=record.topic, reason="time").inc()
        return kept

    def _timely(self, row: Row) -> bool:
        """Neither older than the table keeps nor from the future."""
        table, values = row
        if table == "estimate_gone":
            return True
        at_us, now_us = values[f"{TIME_COLUMNS[table]}_us"], self._clock.now_us()
        # One day less than is kept: a partition that retention drops today is not created again.
        oldest_us = now_us - (self._retention_days[table] - 1) * 86_400_000_000 if table in self._retention_days else 0
        return bool(oldest_us <= at_us <= now_us + FUTURE_US)

    # Link loads: one row for each link and second

    async def run_loads(self) -> None:
        """Archive until cancelled."""
        await self._keep(self._loads)

    async def _loads(self) -> None:
        downsampler = Downsampler()

        def share(partitions: frozenset[Partition]) -> None:
            downsampler.keep_only(frozenset(number for _, number in partitions))

        committed: dict[int, int] = {}
        subscription = self._broker.subscribe([LINK_LOAD], group=GROUP_LOADS, start="earliest", on_partitions=share)
        async with subscription:
            last: dict[int, Record] = {}
            while True:
                for record in await self._batch(subscription):
                    last[record.partition] = record
                    if isinstance(record.value, link_load_pb2.LinkLoadReport):
                        downsampler.add(record.partition, record.offset, record.value, self._clock.now_us())
                rows: list[Row] = [("link_load", row) for row in downsampler.take(self._clock.now_us())]
                if not rows:
                    continue
                newest_us = max(row["at_us"] for _, row in rows)
                await self._store([row for row in rows if self._timely(row)], "link-load", newest_us)
                self._note_delay("link-load", newest_us)
                for partition, offset in downsampler.done_offsets().items():
                    if offset > 0 and committed.get(partition) != offset and partition in last:
                        await subscription.commit(last[partition]._replace(offset=offset - 1))
                        committed[partition] = offset

    # Both

    async def _keep(self, loop: Callable[[], Awaitable[None]]) -> None:
        def told(error: Exception, again_in_s: float) -> None:
            _log.warning("reading the streams failed, trying again", reason=str(error), again_in_s=again_in_s)

        await for_ever(loop, StreamError, told, BACK_OFF_S, sleep=self._clock.sleep)

    def _note_delay(self, loop: str, newest_us: int) -> None:
        DELAY.labels(loop=loop).set(max(0.0, (self._clock.now_us() - newest_us) / 1e6))

    async def _store(self, rows: list[Row], loop: str, newest_us: int) -> None:
        """One transaction, tried until the database takes it; a row that it refuses is left out, by name in the log.
        ``newest_us``: of the loop's newest record, whose age is told while it waits.
        """
        if not rows:
            return

        async def insert() -> None:
            with BATCH.time():
                await self._repository.insert(rows)

        def told(error: Exception, again_in_s: float) -> None:
            FAILURES.inc()
            self._note_delay(loop, newest_us)
            self.health.failure = f"the database does not take rows: {error}"
            _log.warning("rows wait for the database", rows=len(rows), reason=str(error), again_in_s=again_in_s)

        try:
            await until_done(insert, _DATABASE_AWAY, told, BACK_OFF_S, sleep=self._clock.sleep)
        except psycopg.Error as error:
            if len(rows) == 1:
                table = rows[0][0]
                REJECTED.labels(topic=table, reason="database").inc()
                _log.error("the database refuses a row", table=table, row=repr(rows[0][1])[:500], reason=str(error))
                return
            middle = len(rows) // 2
            await self._store(rows[:middle], loop, newest_us)
            await self._store(rows[middle:], loop, newest_us)
            return
        self.health.failure = ""
        for table, _ in rows:
            ROWS.labels(table=table).inc()

    async def run_retention(self) -> None:
        """Create partitions ahead and drop old ones, until cancelled."""
        while True:
            try:
                today = day_of(self._clock.now_us())
                dropped = await self._repository.maintain(today, self._retention_days)
                if dropped:
                    _log.info("dropped what is older than the retention", partitions=dropped)
            except psycopg.Error as error:
                FAILURES.inc()
                _log.warning("retention waits for the database", reason=str(error))
            except psycopg_pool.PoolTimeout as error:
                _log.warning("retention waits for the database", reason=str(error))
            await self._clock.sleep(RETENTION_EVERY_S)


async def _commit(subscription: Subscription, records: list[Record]) -> None:
    """Remember the last record of each partition."""
    newest = {(record.topic, record.partition): record for record in records}
    await asyncio.gather(*(subscription.commit(record) for record in newest.values()))
