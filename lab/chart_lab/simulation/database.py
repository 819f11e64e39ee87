"""A database in memory with what admission needs of PostgreSQL: transactions that happen wholly or not at all, row
locks that wait in order, READ COMMITTED, SKIP LOCKED, and a server that can die in the middle.

Each operation takes simulated time before it has its effect, so transactions of several replicas meet in every order.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from chart_lab.simulation.loop import SimulatedLoop
from chart_lab.simulation.processes import Process

DATABASE = "database"
LOCK_LIMIT_S = 5.0
CONNECT_LIMIT_S = 2.0
RETRY_S = 0.1

# (table, primary key)
Place = tuple[str, Any]
Row = dict[Any, Any]


class Database:
    """Committed rows, locks, and who waits for them."""

    def __init__(self, loop: SimulatedLoop, numbers: random.Random) -> None:
        self.loop = loop
        self.numbers = numbers
        self.up = True
        self.tables: dict[str, dict[Any, Row]] = {}
        # Told each commit: (process, what was there before, what is there now), None for no row.
        self.watchers: list[Callable[[str, dict[Place, Row | None], dict[Place, Row | None]], None]] = []
        self.woken = asyncio.Event()
        self._sequence = 0
        self._owners: dict[Place, Transaction] = {}
        self._waiting: dict[Place, deque[tuple[Transaction, asyncio.Future[None]]]] = {}
        self._open: dict[Transaction, None] = {}
        # Who holds the advisory lock of the outbox.
        self.relay: Any = None

    def table(self, name: str) -> dict[Any, Row]:
        """Committed rows by primary key."""
        return self.tables.setdefault(name, {})

    def next_number(self) -> int:
        """A sequence: numbers are given at the insert, not at the commit, and never given back."""
        self._sequence += 1
        return self._sequence

    def crash(self) -> None:
        """The server dies: what is committed stays, everything under way is undone."""
        self.up = False
        self.relay = None
        for transaction in list(self._open):
            transaction.abort()

    @asynccontextmanager
    async def transaction(self, process: Process) -> AsyncIterator[Transaction]:
        """A transaction of a process; commits at the end, or rolls back when an exception leaves the block.

        Raises:
            psycopg.OperationalError: the server is away, or went away. Whether it committed may then be unknown.
        """
        waited_s = 0.0
        while not (self.up and process.reaches(DATABASE)):
            if waited_s >= CONNECT_LIMIT_S:
                msg = "the database does not answer"
                raise psycopg.OperationalError(msg)
            await asyncio.sleep(RETRY_S)
            waited_s += RETRY_S
        transaction = Transaction(self, process)
        self._open[transaction] = None
        try:
            yield transaction
            await transaction.commit()
        finally:
            transaction.abort()

    def release(self, transaction: Transaction) -> None:
        """Give its locks to those who wait longest."""
        self._open.pop(transaction, None)
        for place in transaction.locked:
            del self._owners[place]
            self._grant(place)
        transaction.locked.clear()

    def _grant(self, place: Place) -> None:
        waiting = self._waiting.get(place)
        while waiting:
            transaction, future = waiting.popleft()
            if not future.done() and not transaction.ended:
                self._owners[place] = transaction
                transaction.locked[place] = None
                future.set_result(None)
                return
        self._waiting.pop(place, None)

    async def lock(self, transaction: Transaction, place: Place) -> None:
        """Wait for a row's lock.

        Raises:
            psycopg.errors.LockNotAvailable: not within the limit, as lock_timeout has it.
        """
        owner = self._owners.get(place)
        if owner is transaction:
            return
        if owner is None:
            self._owners[place] = transaction
            transaction.locked[place] = None
            return
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.setdefault(place, deque()).append((transaction, future))
        transaction.waits = future
        try:
            async with asyncio.timeout(LOCK_LIMIT_S):
                await future
        except TimeoutError:
            msg = f"no lock on {place} within {LOCK_LIMIT_S:g} s"
            raise psycopg.errors.LockNotAvailable(msg) from None

    def locked(self, place: Place) -> bool:
        """Whether anybody holds a row's lock."""
        return place in self._owners

    def apply(self, transaction: Transaction) -> None:
        """Make what a transaction wrote what everybody reads."""
        before: dict[Place, Row | None] = {}
        for (table, key), row in transaction.written.items():
            rows = self.table(table)
            before[table, key] = rows.get(key)
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        if transaction.written:
            for watcher in self.watchers:
                watcher(transaction.process.name, before, transaction.written)
            self.woken.set()


class Transaction:
    """One transaction on one connection of one life of a process."""

    def __init__(self, database: Database, process: Process) -> None:
        self.process = process
        self.locked: dict[Place, None] = {}
        self.written: dict[Place, Row | None] = {}
        self._database = database
        self._life = process.life
        self.ended = False
        # For a lock.
        self.waits: asyncio.Future[None] | None = None

    async def pause(self) -> None:
        """A round trip to the server.

        Raises:
            psycopg.OperationalError: the connection is broken.
        """
        numbers = self._database.numbers
        long = numbers.random() < 0.01
        await asyncio.sleep(numbers.uniform(0.02, 0.3) if long else numbers.uniform(0.0002, 0.002))
        self._check()

    def _check(self) -> None:
        process = self.process
        if self.ended or not process.reaches(DATABASE) or process.life != self._life or not self._database.up:
            msg = "the connection to the database broke"
            raise psycopg.OperationalError(msg)

    async def lock(self, table: str, key: Any) -> None:
        """FOR UPDATE of one row, there or not (a unique key that another inserts at this moment is waited for too)."""
        self._check()
        await self._database.lock(self, (table, key))
        self._check()

    def try_lock(self, table: str, key: Any) -> bool:
        """FOR UPDATE SKIP LOCKED."""
        if self._database.locked((table, key)) and (table, key) not in self.locked:
            return False
        self._database._owners[table, key] = self
        self.locked[table, key] = None
        return True

    def read(self, table: str, key: Any) -> Row | None:
        """A row as this transaction sees it: its own writes over what is committed at this moment."""
        place = (table, key)
        row = self.written[place] if place in self.written else self._database.table(table).get(key)
        return copy.copy(row)

    def scan(self, table: str) -> Iterator[tuple[Any, Row]]:
        """All rows that this transaction sees, by primary key."""
        committed = self._database.table(table)
        own = {key: row for (name, key), row in self.written.items() if name == table}
        for key in [*committed, *(key for key in own if key not in committed)]:
            row = own[key] if key in own else committed[key]
            if row is not None:
                yield key, row

    async def write(self, table: str, key: Any, row: Row | None) -> None:
        """Insert, update, or with None delete a row; takes its lock."""
        await self.lock(table, key)
        self.written[table, key] = None if row is None else dict(row)

    async def commit(self) -> None:
        """All of it, at one moment; the answer may get lost."""
        if not self.written:
            self._check()
            self._database.release(self)
            self.ended = True
            return
        await self.pause()
        self._database.apply(self)
        self._database.release(self)
        self.ended = True
        await asyncio.sleep(self._database.numbers.uniform(0.0002, 0.003))
        if not self.process.reaches(DATABASE) or not self._database.up:
            msg = "the connection broke while a commit was under way"
            raise psycopg.OperationalError(msg)

    def abort(self) -> None:
        """Undo everything; after a commit nothing happens."""
        if not self.ended:
            self.ended = True
            self.written = {}
            if self.waits is not None and not self.waits.done():
                self.waits.set_exception(psycopg.OperationalError("the server closed the connection"))
            self._database.release(self)
