"""Data repository and configuration repository of a pod: one SQLite file (The CHART System, section 6, figure 3).

What is acknowledged is on disk (WAL, synchronous FULL). Statements run in one thread; results that arrive
together share a transaction. All SQL of the pod stands here.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import structlog

from chart.v1 import measurement_pb2, sensing_configuration_pb2

Origin = Literal["stream", "local"]
Result = TypeVar("Result")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS configuration (id TEXT PRIMARY KEY, origin TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS measurement (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, destination TEXT NOT NULL,
    metric TEXT NOT NULL, measured_at_us INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS measurement_series ON measurement (destination, metric, measured_at_us);
CREATE TABLE IF NOT EXISTS run (
    group_key TEXT PRIMARY KEY, started_at_us INTEGER NOT NULL, first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS skip (
    at_us INTEGER NOT NULL, group_key TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
    count INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS skip_at ON skip (at_us);
CREATE TABLE IF NOT EXISTS cursor (name TEXT PRIMARY KEY, sequence INTEGER NOT NULL);
"""
_PRUNE_ROWS = 5_000

_log = structlog.get_logger("chart.sensor_pod.repository")


@dataclass(frozen=True)
class RunRecord:
    """One run of a sensor and its results, written together."""

    group_key: str
    started_at_us: int
    measurements: tuple[measurement_pb2.Measurement, ...]


@dataclass(frozen=True)
class SkipRecord:
    """A run that was not made."""

    at_us: int
    group_key: str
    reason: str
    detail: str
    count: int


@dataclass(frozen=True)
class Retention:
    """How much the file keeps. Results that were not published yet stay until the last limit."""

    age_us: int = 7 * 86_400_000_000
    rows: int = 500_000
    unpublished_rows: int = 5_000_000


@dataclass(frozen=True)
class Pruned:
    """What `prune` removed; ``lost`` were never published."""

    rows: int
    lost: int


class Repository:
    """The pod's file; open it with `open`, close it with `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="repository")
        self._waiting: list[tuple[RunRecord | SkipRecord, asyncio.Future[None]]] = []
        self._writing = False
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open or create the file. One that is no database any more is put aside, with its name in the log."""
        await self._do(self._open)

    async def close(self) -> None:
        """Finish what is under way."""
        await self._do(self._close)
        self._thread.shutdown(wait=True)

    async def _do(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            aside = self._path.with_suffix(".damaged")
            self._path.replace(aside)
            for suffix in ("-wal", "-shm"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)
            _log.critical("the repository was damaged and begins anew", kept=str(aside), reason=str(error))
            self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.executescript(_SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._connection is not None, "the repository is not open"
        return self._connection

    # Results

    async def write(self, record: RunRecord | SkipRecord) -> None:
        """Store; returns when it is on disk. Calls that wait at the same time share one transaction."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((record, future))
        if not self._writing:
            self._writing = True
            try:
                while self._waiting:
                    batch, self._waiting = self._waiting, []
                    await self._write_batch(batch)
            finally:
                self._writing = False
        await future

    async def _write_batch(self, batch: list[tuple[RunRecord | SkipRecord, asyncio.Future[None]]]) -> None:
        outcome: BaseException | None = None
        try:
            await asyncio.shield(self._do(lambda: self._insert([record for record, _ in batch])))
        except BaseException as error:
            outcome = error
            raise
        finally:
            for _, future in batch:
                if future.done():
                    continue
                if outcome is None:
                    future.set_result(None)
                else:
                    future.set_exception(RuntimeError(f"not stored: {outcome!r}"))
                    future.exception()

    def _insert(self, records: list[RunRecord | SkipRecord]) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for record in records:
                if isinstance(record, RunRecord):
                    self._insert_run(record)
                else:
                    db.execute(
                        "INSERT INTO skip VALUES (?, ?, ?, ?, ?)",
                        (record.at_us, record.group_key, record.reason, record.detail, record.count),
                    )
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise

    def _insert_run(self, record: RunRecord) -> None:
        sequences = [
            self._db.execute(
                "INSERT INTO measurement (id, destination, metric, measured_at_us, body) VALUES (?, ?, ?, ?, ?)",
                (entry.id, entry.destination_node, entry.metric, entry.measured_at_us, entry.SerializeToString()),
            ).lastrowid
            or 0
            for entry in record.measurements
        ]
        if sequences:
            self._db.execute(
                "INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?)",
                (record.group_key, record.started_at_us, sequences[0], sequences[-1]),
            )

    async def last_starts_us(self) -> dict[str, int]:
        """When each group ran last, wall clock."""
        return await self._do(lambda: dict(self._db.execute("SELECT group_key, started_at_us FROM run").fetchall()))

    async def results_since(self, group_key: str, started_at_us: int) -> list[measurement_pb2.Measurement]:
        """Results of the group's last run when it started at that time or later; otherwise nothing."""

        def read() -> list[measurement_pb2.Measurement]:
            rows = self._db.execute(
                "SELECT m.body FROM run r JOIN measurement m ON m.sequence BETWEEN r.first_sequence AND r.last_sequence"
                " WHERE r.group_key = ? AND r.started_at_us >= ? ORDER BY m.sequence",
                (group_key, started_at_us),
            )
            return _measurements(rows)

        return await self._do(read)

    async def query(
        self, destination: str, metric: str, from_us: int, until_us: int, limit: int
    ) -> list[measurement_pb2.Measurement]:
        """The newest results in [from, until), oldest first; an empty name means any."""

        def read() -> list[measurement_pb2.Measurement]:
            rows = self._db.execute(
                "SELECT body FROM (SELECT measured_at_us, sequence, body FROM measurement"
                " WHERE (? = '' OR destination = ?) AND (? = '' OR metric = ?)"
                " AND measured_at_us >= ? AND measured_at_us < ?"
                " ORDER BY measured_at_us DESC, sequence DESC LIMIT ?) ORDER BY measured_at_us, sequence",
                (destination, destination, metric, metric, from_us, until_us, limit),
            )
            return _measurements(rows)

        return await self._do(read)

    async def newest(self, destination: str, metric: str) -> measurement_pb2.Measurement | None:
        """The last result of a metric towards a node, a failed run included; None without any."""

        def read() -> measurement_pb2.Measurement | None:
            row = self._db.execute(
                "SELECT body FROM measurement WHERE destination = ? AND metric = ?"
                " ORDER BY measured_at_us DESC, sequence DESC LIMIT 1",
                (destination, metric),
            ).fetchone()
            return measurement_pb2.Measurement.FromString(row[0]) if row else None

        return await self._do(read)

    # Publishing

    async def after(self, sequence: int, limit: int) -> list[tuple[int, measurement_pb2.Measurement]]:
        """Results after a sequence number, in order."""

        def read() -> list[tuple[int, measurement_pb2.Measurement]]:
            rows = self._db.execute(
                "SELECT sequence, body FROM measurement WHERE sequence > ? ORDER BY sequence LIMIT ?", (sequence, limit)
            )
            return [(number, measurement_pb2.Measurement.FromString(body)) for number, body in rows]

        return await self._do(read)

    async def cursor(self, name: str) -> int:
        """How far a reader of the results is; 0 at the start."""

        def read() -> int:
            row = self._db.execute("SELECT sequence FROM cursor WHERE name = ?", (name,)).fetchone()
            return int(row[0]) if row else 0

        return await self._do(read)

    async def move_cursor(self, name: str, sequence: int) -> None:
        """Remember how far a reader is."""
        await self._do(lambda: self._db.execute("INSERT OR REPLACE INTO cursor VALUES (?, ?)", (name, sequence)))

    async def prune(self, cursor: str, now_us: int, retention: Retention) -> Pruned:
        """Remove what is too old or too much, a bounded number of rows at a time."""
        return await self._do(lambda: self._prune(cursor, now_us, retention))

    def _prune(self, cursor: str, now_us: int, retention: Retention) -> Pruned:
        db = self._db
        row = db.execute("SELECT sequence FROM cursor WHERE name = ?", (cursor,)).fetchone()
        published = int(row[0]) if row else 0
        last = int(db.execute("SELECT coalesce(max(sequence), 0) FROM measurement").fetchone()[0])
        old = db.execute(
            "DELETE FROM measurement WHERE sequence IN (SELECT sequence FROM measurement"
            " WHERE sequence <= ? AND (sequence <= ? OR measured_at_us < ?) ORDER BY sequence LIMIT ?)",
            (published, last - retention.rows, now_us - retention.age_us, _PRUNE_ROWS),
        ).rowcount
        lost = db.execute(
            "DELETE FROM measurement WHERE sequence IN (SELECT sequence FROM measurement"
            " WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?)",
            (published, last - retention.unpublished_rows, _PRUNE_ROWS),
        ).rowcount
        db.execute("DELETE FROM skip WHERE at_us < ?", (now_us - retention.age_us,))
        db.execute("DELETE FROM run WHERE started_at_us < ?", (now_us - retention.age_us,))
        db.execute("PRAGMA incremental_vacuum(1000)")
        return Pruned(old + lost, lost)

    async def count(self) -> int:
        """Stored results."""
        return await self._do(lambda: int(self._db.execute("SELECT count(*) FROM measurement").fetchone()[0]))

    async def skips(self, limit: int) -> list[SkipRecord]:
        """Runs that were not made, the newest first."""

        def read() -> list[SkipRecord]:
            rows = self._db.execute("SELECT * FROM skip ORDER BY at_us DESC, rowid DESC LIMIT ?", (limit,))
            return [SkipRecord(*row) for row in rows]

        return await self._do(read)

    # Configurations

    async def put_configuration(
        self, configuration: sensing_configuration_pb2.SensingConfiguration, origin: Origin
    ) -> None:
        """Store a configuration; returns when it is on disk."""
        row = (configuration.id, origin, configuration.SerializeToString())
        await self._do(lambda: self._db.execute("INSERT OR REPLACE INTO configuration VALUES (?, ?, ?)", row))

    async def put_configurations(
        self, configurations: Iterable[sensing_configuration_pb2.SensingConfiguration], origin: Origin
    ) -> None:
        """Store many at once."""
        rows = [(entry.id, origin, entry.SerializeToString()) for entry in configurations]

        def put() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO configuration VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")

        await self._do(put)

    async def remove_configurations(self, identities: Iterable[str]) -> None:
        """Forget configurations."""
        rows = [(identity,) for identity in identities]

        def remove() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("DELETE FROM configuration WHERE id = ?", rows)
            self._db.execute("COMMIT")

        await self._do(remove)

    async def configurations(self) -> list[tuple[sensing_configuration_pb2.SensingConfiguration, Origin]]:
        """All that are stored, with where each came from."""

        def read() -> list[tuple[sensing_configuration_pb2.SensingConfiguration, Origin]]:
            rows = self._db.execute("SELECT body, origin FROM configuration ORDER BY id")
            return [(sensing_configuration_pb2.SensingConfiguration.FromString(body), origin) for body, origin in rows]

        return await self._do(read)


def _measurements(rows: Iterable[tuple[bytes]]) -> list[measurement_pb2.Measurement]:
    return [measurement_pb2.Measurement.FromString(body) for (body,) in rows]
