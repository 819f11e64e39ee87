"""The outbox relay over the database in memory: as chart.common.outbox has it, one works at a time, each key in order,
a row goes when the broker acknowledged it, whatever dies in between.
"""

from __future__ import annotations

import asyncio

import psycopg
import structlog

from chart.common.records import StreamError
from chart.simulation.broker import BrokerClient
from chart.simulation.database import DATABASE, Database, Row
from chart.simulation.processes import Process

POLL_S = 1.0
STANDBY_S = 1.0
BATCH_ROWS = 500
RETRY_S = 0.1

_log = structlog.get_logger("chart.outbox")


class SimulatedRelay:
    """Publishes the outbox for one life of a process."""

    def __init__(self, database: Database, client: BrokerClient, process: Process) -> None:
        self._database = database
        self._client = client
        self._process = process
        self._life = process.life

    def _connected(self) -> bool:
        return self._database.up and self._process.reaches(DATABASE) and self._process.life == self._life

    async def run(self) -> None:
        """Publish until the process ends."""
        while True:
            holder = self._database.relay
            if self._connected() and (holder is None or not holder._connected()):
                self._database.relay = self
                try:
                    await self._work()
                finally:
                    if self._database.relay is self:
                        self._database.relay = None
            await asyncio.sleep(STANDBY_S)

    async def _work(self) -> None:
        """While the lock is held, which falls with its connection."""
        while self._connected() and self._database.relay is self:
            try:
                rows = await self._waiting()
                if rows:
                    if not await self._publish(rows):
                        await asyncio.sleep(RETRY_S)
                    continue
            except psycopg.Error as error:
                _log.warning("the relay lost its database", reason=str(error))
                return
            self._database.woken.clear()
            try:
                async with asyncio.timeout(POLL_S):
                    await self._database.woken.wait()
            except TimeoutError:
                continue

    async def _waiting(self) -> list[tuple[int, Row]]:
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            return sorted(transaction.scan("outbox"))[:BATCH_ROWS]

    async def _publish(self, rows: list[tuple[int, Row]]) -> bool:
        by_key: dict[tuple[str, str], list[tuple[int, Row]]] = {}
        for number, row in rows:
            by_key.setdefault((row["topic"], row["key"]), []).append((number, row))
        done: list[int] = []

        async def publish_key(queue: list[tuple[int, Row]]) -> None:
            for number, row in queue:
                try:
                    await self._client.publish_raw(row["topic"], row["key"], row["payload"], {})
                except StreamError as error:
                    _log.warning("records stay in the outbox", reason=str(error))
                    return
                done.append(number)

        try:
            await asyncio.gather(*(publish_key(queue) for queue in by_key.values()))
        finally:
            if done and self._connected():
                async with self._database.transaction(self._process) as transaction:
                    for number in done:
                        await transaction.write("outbox", number, None)
        return len(done) == len(rows)
