"""How old the newest record is while the database takes nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import psycopg

from chart.archiver.repository import Repository
from chart.archiver.settings import ArchiverSettings
from chart.archiver.streams import DELAY, Archiver
from chart.common.clock import FakeClock
from chart.common.streams import LocalBroker
from chart.v1 import measurement_pb2


class Away:
    """A database that takes nothing until it is back."""

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.tried = 0
        self.rows: list[Any] = []

    async def insert(self, rows: list[Any]) -> None:
        self.tried += 1
        if not self.back.is_set():
            raise psycopg.OperationalError("the connection is closed")
        self.rows += rows


def delay_s() -> float:
    return float(DELAY.labels(loop="facts")._value.get())


async def test_records_that_wait_for_the_database_grow_old() -> None:
    clock, database = FakeClock(), Away()
    broker = LocalBroker(clock)
    archiver = Archiver(broker, cast(Repository, database), clock, ArchiverSettings(archive_batch_wait_s=0.01))
    archiving = asyncio.create_task(archiver.run_facts())
    try:
        measurement = measurement_pb2.Measurement(
            id="1", source_node="a", destination_node="b", metric="rtt_us", value=1.0, measured_at_us=clock.now_us()
        )
        await broker.publish("chart.measurement.v1", "a,b,rtt_us", measurement)
        async with asyncio.timeout(10):
            while database.tried < 3 or delay_s() < 20:
                await asyncio.sleep(0.02)
                await clock.advance(5)
            database.back.set()
            while not database.rows:
                await asyncio.sleep(0.02)
                await clock.advance(5)
    finally:
        archiving.cancel()
    assert delay_s() >= 20
