"""The outbox relay over the database in memory: as chart.common.outbox has it, one works at a time, each key in order,
a row goes when the broker acknowledged it, whatever dies in between.
"""

from __future__ import annotations

import asyncio

import psycopg
import structlog

from chart.common.records import StreamError
from chart_lab.simulation.broker import BrokerClient
from chart_lab.simulation.database import DATABASE, Database, Row
from chart_lab.simulation.processes import Process

POLL_S = 1.0
STANDBY_S = 1.0
BATCH_ROWS = 500
RETRY_S = 0.1
# As in chart.common.outbox, for the simulation's shorter delivery timeout.
HOLD_S = 1.0
REPEAT_AFTER_S = 5.0

_log = structlog.get_logger("chart.outbox")


class SimulatedRelay:
    """Publishes the outbox for one life of a process."""

    def __init__(self, database: Database, client: BrokerClient, process: Process) -> None:
        self._database = database
        self._client = client
        self._process = process
        self._life = process.life
        self._doubtful: dict[tuple[str, str], Row | None] = {}

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
        try:
            found = await self._waiting()
        except psycopg.Error as error:
            _log.warning("the relay lost its database", reason=str(error))
            return
        catalogue = self._client.broker.catalogue
        self._doubtful = {
            (row["topic"], row["key"]): None for _, row in found if catalogue.topic(row["topic"]).cleanup == "compact"
        }
        loop = asyncio.get_running_loop()
        repeat_at = loop.time() + REPEAT_AFTER_S
        while self._connected() and self._database.relay is self:
            if self._doubtful and loop.time() >= repeat_at:
                await self._repeat()
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

    async def _repeat(self) -> None:
        """Say again what a predecessor may have said late."""
        rows = [row for row in self._doubtful.values() if row is not None]
        try:
            await asyncio.gather(
                *(self._client.publish_raw(row["topic"], row["key"], row["payload"], {}) for row in rows)
            )
        except StreamError as error:
            _log.warning("what may be outdated is not repeated yet", reason=str(error))
            return
        self._doubtful.clear()

    async def _waiting(self) -> list[tuple[int, Row]]:
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            return sorted(transaction.scan("outbox"))[:BATCH_ROWS]

    async def _publish(self, rows: list[tuple[int, Row]]) -> bool:
        by_key: dict[tuple[str, str], list[tuple[int, Row]]] = {}
        for number, row in rows:
            by_key.setdefault((row["topic"], row["key"]), []).append((number, row))
        done: list[int] = []

        loop = asyncio.get_running_loop()
        hold_until = loop.time() + HOLD_S
        failed = False

        async def publish_key(queue: list[tuple[int, Row]]) -> None:
            nonlocal failed
            for number, row in queue:
                if loop.time() > hold_until:
                    return
                try:
                    await self._client.publish_raw(row["topic"], row["key"], row["payload"], {})
                except StreamError as error:
                    _log.warning("records stay in the outbox", reason=str(error))
                    failed = True
                    return
                done.append(number)
                if (row["topic"], row["key"]) in self._doubtful:
                    self._doubtful[row["topic"], row["key"]] = row

        try:
            await asyncio.gather(*(publish_key(queue) for queue in by_key.values()))
        finally:
            if done and self._connected():
                async with self._database.transaction(self._process) as transaction:
                    for number in done:
                        await transaction.write("outbox", number, None)
        return not failed
