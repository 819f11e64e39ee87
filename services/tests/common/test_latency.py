"""From a service's transaction to a reader of the stream, with the real database and broker."""

from __future__ import annotations

import asyncio
import time

import pytest

from chart.common import database, outbox
from chart.common.outbox import OutboxRelay
from chart.common.settings import BaseServiceSettings
from chart.common.streams import KafkaBroker
from chart.v1 import policy_pb2
from support.kafka import KafkaServer, fresh_catalogue
from support.postgres import PostgresServer

pytestmark = pytest.mark.contract
# Of the 100 ms that a rate request may take until it is enforced.
MEDIAN_LIMIT_MS = 60


async def test_from_transaction_to_reader(kafka: KafkaServer, postgres: PostgresServer) -> None:
    postgres.truncate("registry")
    catalogue, names = fresh_catalogue(kafka.bootstrap, state="chart.policy.v1")
    broker = KafkaBroker(kafka.bootstrap, catalogue=catalogue)
    settings = BaseServiceSettings(database_url=postgres.role_url("registry"))
    took_ms = []
    async with database.pool(settings) as pool, broker.subscribe([names["state"]]) as records:
        relaying = asyncio.create_task(OutboxRelay(pool, broker, "registry").run())
        for number in range(60):
            started = time.monotonic()
            async with pool.connection() as connection, connection.transaction():
                await outbox.add(connection, names["state"], "a", policy_pb2.Policy(id="a", revision=number))
            async with asyncio.timeout(20):
                await anext(records)
            took_ms.append((time.monotonic() - started) * 1000)
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)
    await broker.close()
    steady = sorted(took_ms[10:])
    print(f"transaction to reader: median {steady[25]:.1f} ms, slowest {steady[-1]:.1f} ms")
    assert steady[25] < MEDIAN_LIMIT_MS
