"""The outbox on a real PostgreSQL: published after the commit or never, in order of each key, whatever dies."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
import yaml

from chart.common import audit, database, outbox, telemetry
from chart.common.database import Pool
from chart.common.outbox import OutboxRelay
from chart.common.settings import BaseServiceSettings
from chart.common.streams import KafkaBroker, LocalBroker, Record
from chart.v1 import audit_pb2, policy_pb2
from support import relay_program
from support.kafka import KafkaServer, fresh_catalogue
from support.postgres import PostgresServer
from support.waiting import eventually

pytestmark = pytest.mark.contract
TOPIC = "chart.policy.v1"


def policy(identity: str, revision: int) -> policy_pb2.Policy:
    return policy_pb2.Policy(id=identity, revision=revision)


@pytest_asyncio.fixture
async def pool(postgres: PostgresServer) -> AsyncIterator[Pool]:
    postgres.truncate("registry")
    async with database.pool(BaseServiceSettings(database_url=postgres.role_url("registry"))) as opened:
        yield opened


@contextlib.asynccontextmanager
async def relay(pool: Pool, broker: LocalBroker | KafkaBroker) -> AsyncIterator[None]:
    running = asyncio.create_task(OutboxRelay(pool, broker, "registry").run())
    try:
        yield
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def revisions_of(records: Iterable[Record]) -> list[int]:
    return [record.value.revision for record in records if isinstance(record.value, policy_pb2.Policy)]


async def add(pool: Pool, key: str, revision: int) -> None:
    async with pool.connection() as connection, connection.transaction():
        await outbox.add(connection, TOPIC, key, policy(key, revision))


async def waiting(pool: Pool) -> int:
    async with pool.connection() as connection:
        row = await (await connection.execute("SELECT count(*) AS n FROM outbox WHERE published_at IS NULL")).fetchone()
    assert row is not None
    return int(row["n"])


async def test_a_committed_record_is_published_at_once_and_a_rolled_back_one_never(pool: Pool) -> None:
    broker = LocalBroker()
    async with relay(pool, broker), broker.subscribe([TOPIC]) as records:
        await add(pool, "warm", 1)
        await asyncio.wait_for(anext(records), 10)
        with contextlib.suppress(ZeroDivisionError):
            async with pool.connection() as connection, connection.transaction():
                await outbox.add(connection, TOPIC, "undone", policy("undone", 1))
                raise ZeroDivisionError
        took_ms = []
        for revision in range(20):
            started = time.monotonic()
            await add(pool, "a", revision)
            record = await asyncio.wait_for(anext(records), 10)
            took_ms.append((time.monotonic() - started) * 1000)
            assert record.value == policy("a", revision)
    median_ms = sorted(took_ms)[10]
    print(f"transaction to publication, median: {median_ms:.1f} ms")
    assert median_ms < 50, "the notification must wake the relay, not the poll"


async def test_tombstones_headers_and_the_trace_go_along(pool: Pool) -> None:
    broker = LocalBroker()
    async with relay(pool, broker), broker.subscribe([TOPIC]) as records:
        with telemetry.span("cause") as span:
            async with pool.connection() as connection, connection.transaction():
                await outbox.add(connection, TOPIC, "a", policy("a", 1), {"origin": "test"})
                await outbox.add(connection, TOPIC, "a", None)
        first = await asyncio.wait_for(anext(records), 10)
        second = await asyncio.wait_for(anext(records), 10)
    assert first.headers["origin"] == "test"
    assert first.headers["type"] == "chart.v1.Policy"
    assert f"{span.get_span_context().trace_id:032x}" in first.headers["traceparent"]
    assert second.value is None


async def test_audit_leaves_a_row_and_a_record(pool: Pool) -> None:
    broker = LocalBroker()
    async with relay(pool, broker), broker.subscribe([audit.TOPIC]) as records:
        async with pool.connection() as connection, connection.transaction():
            await audit.add(connection, "alice", "policy.put", "default", {"after": {"revision": 2}})
        record = await asyncio.wait_for(anext(records), 10)
    assert isinstance(record.value, audit_pb2.AuditRecord)
    assert (record.value.actor, record.value.action, record.key) == ("alice", "policy.put", "default")
    async with pool.connection() as connection:
        row = await (await connection.execute("SELECT detail FROM audit")).fetchone()
    assert row == {"detail": {"after": {"revision": 2}}}


async def test_a_broker_that_is_away_delays_and_keeps_the_order(pool: Pool) -> None:
    broker = LocalBroker()
    async with relay(pool, broker), broker.subscribe([TOPIC]) as records:
        failures = outbox.FAILED.labels(schema="registry")._value.get
        before = failures()
        broker.available = False
        for revision in range(30):
            await add(pool, f"k{revision % 3}", revision)
        await eventually(lambda: failures() > before)
        assert await waiting(pool) == 30
        broker.available = True
        got = [await asyncio.wait_for(anext(records), 20) for _ in range(30)]
        await eventually(lambda: waiting_is(pool, 0))
    for key in ("k0", "k1", "k2"):
        revisions = revisions_of(record for record in got if record.key == key)
        assert revisions == sorted(revisions)
        assert len(revisions) == 10


async def waiting_is(pool: Pool, count: int) -> bool:
    return await waiting(pool) == count


async def test_of_two_relays_one_works_and_the_other_takes_over(pool: Pool) -> None:
    broker = LocalBroker()
    async with broker.subscribe([TOPIC]) as records:
        async with relay(pool, broker):
            await add(pool, "a", 1)
            await asyncio.wait_for(anext(records), 10)
            second = asyncio.create_task(OutboxRelay(pool, broker, "registry").run())
            for revision in range(2, 12):
                await add(pool, "a", revision)
            got = [await asyncio.wait_for(anext(records), 10) for _ in range(10)]
            assert revisions_of(got) == list(range(2, 12))
        await add(pool, "a", 12)
        record = await asyncio.wait_for(anext(records), 10)
        assert record.value == policy("a", 12)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(records), 0.1)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


class Slow(LocalBroker):
    """The way of one relay to the streams: nothing arrives before it is let through."""

    def __init__(self, streams: LocalBroker) -> None:
        super().__init__()
        self.streams = streams
        self.sent = asyncio.Event()
        self.through = asyncio.Event()

    async def publish_raw(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        self.sent.set()
        await self.through.wait()
        await self.streams.publish_raw(topic, key, payload, headers)


async def test_a_late_record_of_a_relay_that_lost_its_lock_does_not_stay(pool: Pool, postgres: PostgresServer) -> None:
    streams = LocalBroker()
    late = Slow(streams)
    state = await streams.compacted(TOPIC)
    former = asyncio.create_task(OutboxRelay(pool, late, "registry").run())
    await add(pool, "a", 1)
    await asyncio.wait_for(late.sent.wait(), 10)
    async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as admin:
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
        )
    following = asyncio.create_task(OutboxRelay(pool, streams, "registry", repeat_after_s=3).run())
    try:
        await eventually(lambda: state.get("a") == policy("a", 1))
        await add(pool, "a", 2)
        await eventually(lambda: state.get("a") == policy("a", 2))
        late.through.set()
        await eventually(lambda: state.get("a") == policy("a", 1))
        await eventually(lambda: state.get("a") == policy("a", 2), 10)
    finally:
        for task in (former, following):
            task.cancel()
        await asyncio.gather(former, following, return_exceptions=True)
        await streams.close()


async def test_the_relay_outlives_its_database_connection(pool: Pool, postgres: PostgresServer) -> None:
    broker = LocalBroker()
    async with relay(pool, broker), broker.subscribe([TOPIC]) as records:
        await add(pool, "a", 1)
        await asyncio.wait_for(anext(records), 10)
        async with await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) as admin:
            await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'registry'")
        await add(pool, "a", 2)
        record = await asyncio.wait_for(anext(records), 20)
        assert record.value == policy("a", 2)


async def test_what_was_published_long_ago_is_forgotten(pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute(
            "INSERT INTO outbox (topic, key, published_at) VALUES (%s, 'old', now() - interval '2 hours'),"
            " (%s, 'fresh', now() - interval '1 minute')",
            (TOPIC, TOPIC),
        )

    async def keys() -> list[str]:
        async with pool.connection() as connection:
            return [row["key"] for row in await (await connection.execute("SELECT key FROM outbox")).fetchall()]

    async def only_fresh() -> bool:
        return await keys() == ["fresh"]

    async with relay(pool, LocalBroker()):
        await eventually(only_fresh)


@pytest.mark.timeout(300)
async def test_a_relay_killed_in_the_middle_loses_nothing(
    pool: Pool, postgres: PostgresServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    catalogue, names = fresh_catalogue(kafka.bootstrap, state=TOPIC)
    topic = names["state"]
    entry = {"message": "chart.v1.Policy", "key": "id", "partitions": 1, "cleanup": "compact", "dlq": True}
    topics_file = tmp_path / "topics.yaml"
    topics_file.write_text(yaml.safe_dump({"topics": {topic: entry}}))
    broker = KafkaBroker(kafka.bootstrap, catalogue=catalogue)
    total = 3000

    async def write() -> None:
        for start in range(0, total, 50):
            async with pool.connection() as connection, connection.transaction():
                for revision in range(start, start + 50):
                    key = f"k{revision % 7}"
                    await outbox.add(connection, topic, key, policy(key, revision))

    arguments = (postgres.role_url("registry"), kafka.bootstrap, "registry", str(topics_file))
    seen: list[policy_pb2.Policy] = []

    async def read() -> None:
        async for record in records:
            assert isinstance(record.value, policy_pb2.Policy)
            seen.append(record.value)

    async with broker.subscribe([topic], start="earliest") as records:
        reading = asyncio.create_task(read())
        writing = asyncio.create_task(write())
        for threshold in (300, 1200, 2000):
            process = await asyncio.create_subprocess_exec(sys.executable, relay_program.__file__, *arguments)
            try:
                await eventually(lambda threshold=threshold: len(seen) >= threshold, 40)
            finally:
                process.kill()
                await process.wait()
        await writing
        process = await asyncio.create_subprocess_exec(sys.executable, relay_program.__file__, *arguments)
        try:
            await eventually(lambda: len({value.revision for value in seen}) == total, 40)
            await eventually(lambda: waiting_is(pool, 0))
        finally:
            process.kill()
            await process.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    await broker.close()
    # Repetition is allowed, and what is repeated comes in order again: the first time of each is in order of its key.
    for key in {value.id for value in seen}:
        first_times = list(dict.fromkeys(value.revision for value in seen if value.id == key))
        assert first_times == sorted(first_times)
