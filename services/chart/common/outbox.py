"""Transactional outbox: a service's events are rows of the transaction of the change, and a relay publishes them.

A committed change is published at least once, in order of each key, whatever dies in between: a row is marked after the
broker acknowledged it. One relay per schema works at a time (advisory lock); others stand by. `NOTIFY` at commit wakes
it at once; polling catches what a lost notification would miss.

A relay that lost its lock without noticing may still have records on the way. They can only be such that the next relay
found waiting and published itself, so the next one says the newest of these keys once more when nothing of the former
can arrive any longer: a compacted stream ends with the newest state of each key.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg
import structlog
from google.protobuf.message import Message
from prometheus_client import Counter, Gauge, Histogram
from psycopg import sql
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from chart.common import telemetry
from chart.common.database import Connection, Pool
from chart.common.records import Outgoing, StreamError
from chart.common.retries import until_done
from chart.common.streams import Broker

BATCH_ROWS = 500
# The batch that a predecessor had in its hands is among the first so many that wait.
DOUBTFUL_ROWS = 4 * BATCH_ROWS
POLL_S = 1.0
STANDBY_S = 1.0
KEEP_PUBLISHED_S = 3600
PRUNE_EVERY_S = 60.0
BACK_OFF_S = (0.1, 5.0)
# A relay begins no record later than this after it last saw that it holds the lock; its producer gives a record up
# after the delivery timeout (10 s), and then nothing of it is on the way.
HOLD_S = 3.0
# A relay that is told to end waits so long for what is on its way.
ENDING_S = 1.0
REPEAT_AFTER_S = 15.0

PUBLISHED = Counter("chart_outbox_published_records_total", "Records that the relay published", ["schema"])
FAILED = Counter("chart_outbox_failed_records_total", "Attempts to publish that failed", ["schema"])
OLDEST = Gauge("chart_outbox_oldest_seconds", "Age of the oldest record that waits", ["schema"])
DELAY = Histogram(
    "chart_outbox_delay_seconds",
    "From the row's insertion to its acknowledgement",
    ["schema"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30, 120),
)

_log = structlog.get_logger("chart.outbox")


class _NotTakenError(Exception):
    """The broker did not take all of a batch; what was is marked."""


def channel(schema: str) -> str:
    """Name of the notification channel of a schema's outbox."""
    return f"outbox_{schema}"


async def add(
    connection: Connection | psycopg.AsyncConnection[Any],
    topic: str,
    key: str,
    value: Message | None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Queue a record in the caller's transaction; it is published after the commit, or never was. None is a tombstone.

    The current trace goes along, so that the record carries it although the relay publishes it.
    """
    carried = telemetry.inject(headers)
    if value is not None:
        carried["type"] = value.DESCRIPTOR.full_name
    payload = None if value is None else value.SerializeToString()
    await connection.execute(
        "INSERT INTO outbox (topic, key, payload, headers) VALUES (%s, %s, %s, %s)",
        (topic, key, payload, Jsonb(carried)),
    )
    await connection.execute("SELECT pg_notify('outbox_' || current_schema(), '')")


class _Row(NamedTuple):
    id: int
    topic: str
    key: str
    payload: bytes | None
    headers: dict[str, str]
    created_at_s: float

    @property
    def record(self) -> Outgoing:
        return self.topic, self.key, self.payload, self.headers


async def _sent(sending: asyncio.Future[list[StreamError | None]], rows: list[_Row]) -> list[_Row]:
    """Of the rows on their way when the relay was stopped, those that arrive in a moment: a successor need not say
    them again.
    """
    await asyncio.wait({sending}, timeout=ENDING_S)
    if not sending.done():
        sending.cancel()
        return []
    if sending.cancelled() or sending.exception() is not None:
        return []
    return [row for row, error in zip(rows, sending.result(), strict=True) if error is None]


class OutboxRelay:
    """Publishes the outbox of one schema."""

    def __init__(self, pool: Pool, broker: Broker, schema: str, repeat_after_s: float = REPEAT_AFTER_S) -> None:
        """``repeat_after_s``: how long after it took over a relay says once more what its predecessor may say late."""
        self._pool = pool
        self._repeat_after_s = repeat_after_s
        # Topic and key of what a predecessor may still have on the way, with what this relay published of it last.
        self._doubtful: dict[tuple[str, str], _Row | None] = {}
        self._broker = broker
        self._schema = schema
        self._table = sql.Identifier(schema, "outbox")
        self._pruned_at = 0.0

    async def run(self) -> None:
        """Publish until cancelled; survives an absent database and an absent broker."""
        wait_s = BACK_OFF_S[0]
        while True:
            try:
                async with self._pool.connection() as connection:
                    await connection.set_autocommit(True)
                    try:
                        if await self._lead(connection):
                            wait_s = BACK_OFF_S[0]
                            await self._relay(connection)
                    finally:
                        await self._retire(connection)
            except (psycopg.Error, OSError) as error:
                _log.warning("the relay lost its database, trying again", schema=self._schema, reason=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, BACK_OFF_S[1])
            else:
                await asyncio.sleep(STANDBY_S)

    async def _lead(self, connection: Connection) -> bool:
        """Whether this relay now works for the schema; the lock falls with its connection."""
        cursor = await connection.execute("SELECT pg_try_advisory_lock(hashtext(%s)) AS got", (channel(self._schema),))
        row = await cursor.fetchone()
        assert row is not None
        return bool(row["got"])

    async def _retire(self, connection: Connection) -> None:
        """Give the connection back without the lock and without notifications."""
        if connection.closed:
            return
        try:
            await connection.execute("UNLISTEN *")
            await connection.execute("SELECT pg_advisory_unlock_all()")
            await connection.set_autocommit(False)
        except psycopg.Error:
            await connection.close()

    async def _relay(self, connection: Connection) -> None:
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel(self._schema))))
        _log.info("the relay works", schema=self._schema)
        found = await self._waiting(connection, DOUBTFUL_ROWS)
        self._doubtful = {(row.topic, row.key): None for row in found if self._is_state(row.topic)}
        repeat_at = time.monotonic() + self._repeat_after_s

        async def publish() -> int:
            if self._doubtful and time.monotonic() >= repeat_at:
                await self._repeat()
            rows = await self._waiting(connection)
            OLDEST.labels(schema=self._schema).set(max(0.0, time.time() - rows[0].created_at_s) if rows else 0.0)
            if rows and not await self._publish(connection, rows):
                raise _NotTakenError
            return len(rows)

        while True:
            # What failed is told by `_publish`.
            if await until_done(publish, _NotTakenError, lambda *_: None, BACK_OFF_S) == BATCH_ROWS:
                continue
            # These were all; whatever came meanwhile has left its notification, which waits here.
            await self._prune(connection)
            async for _ in connection.notifies(timeout=POLL_S, stop_after=1):
                # Those that came together are one.
                pass

    def _is_state(self, topic: str) -> bool:
        """Whether a stream keeps the newest record of each key; in the others a late record is one more event."""
        return self._broker.catalogue.topic(topic).cleanup == "compact"

    async def _repeat(self) -> None:
        """Say again what a predecessor may have said late; tried again with the next batch when the broker is away."""
        rows = [row for row in self._doubtful.values() if row is not None]
        try:
            await asyncio.gather(*(self._broker.publish_raw(*row.record) for row in rows))
        except StreamError as error:
            _log.warning("what may be outdated is not repeated yet", schema=self._schema, reason=str(error))
            return
        self._doubtful.clear()
        if rows:
            _log.info("said again what a former relay may have said late", schema=self._schema, records=len(rows))

    async def _waiting(self, connection: Connection, limit: int = BATCH_ROWS) -> list[_Row]:
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute(
            sql.SQL(
                "SELECT id, topic, key, payload, headers, extract(epoch FROM created_at)::float8 AS created_at_s"
                " FROM {} WHERE published_at IS NULL ORDER BY id LIMIT %s"
            ).format(self._table),
            (limit,),
        )
        return [_Row._make(row) for row in await cursor.fetchall()]

    async def _publish(self, connection: Connection, rows: list[_Row]) -> bool:
        """Publish a batch, keys beside each other and each key in order; False when the broker did not take it all.

        What was not begun in time stays for the next batch.
        """
        hold_until = time.monotonic() + HOLD_S
        by_key: dict[tuple[str, str], deque[_Row]] = {}
        for row in rows:
            by_key.setdefault((row.topic, row.key), deque()).append(row)
        delay = DELAY.labels(schema=self._schema)
        done: list[int] = []
        reasons: list[str] = []
        try:
            while by_key and time.monotonic() <= hold_until:
                # The oldest of each key; the next of a key must not overtake it.
                oldest = [queue.popleft() for queue in by_key.values()]
                sending = asyncio.ensure_future(self._broker.publish_together([row.record for row in oldest]))
                try:
                    outcomes = await asyncio.shield(sending)
                except asyncio.CancelledError:
                    done += [row.id for row in await _sent(sending, oldest)]
                    raise
                now_s = time.time()
                for row, error in zip(oldest, outcomes, strict=True):
                    key = row.topic, row.key
                    if error is not None:
                        reasons.append(str(error))
                    else:
                        done.append(row.id)
                        delay.observe(max(0.0, now_s - row.created_at_s))
                        if key in self._doubtful:
                            self._doubtful[key] = row
                    if error is not None or not by_key[key]:
                        del by_key[key]
        finally:
            if done:
                await connection.execute(
                    sql.SQL("UPDATE {} SET published_at = now() WHERE id = ANY(%s)").format(self._table), (done,)
                )
                PUBLISHED.labels(schema=self._schema).inc(len(done))
        if reasons:
            FAILED.labels(schema=self._schema).inc(len(reasons))
            _log.warning(
                "records stay in the outbox", schema=self._schema, records=len(rows) - len(done), reason=reasons[0]
            )
        return not reasons

    async def _prune(self, connection: Connection) -> None:
        if time.monotonic() - self._pruned_at < PRUNE_EVERY_S:
            return
        self._pruned_at = time.monotonic()
        await connection.execute(
            sql.SQL("DELETE FROM {} WHERE published_at < now() - make_interval(secs => %s)").format(self._table),
            (KEEP_PUBLISHED_S,),
        )
