"""Group commit: whatever is asked of admission while a transaction runs goes into the next one, up to 64 at once.

A transaction claims idempotency keys, locks the links concerned in id order, reads the blocks of their profiles that it
does not remember, decides one job after the other in memory, and writes everything by a few statements. So the cost of
a transaction, of locks and of the disk is shared, any number of replicas admit at once, and no link is over-committed.
A job that could only be granted at the cost of others is put off to a next transaction that also locks these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Histogram

from chart.common.clock import Clock
from chart.common.database import Connection, Pool
from chart.reservations.decisions import messages
from chart.reservations.decisions.jobs import Job
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.profile import UnknownBlockError
from chart.reservations.edges.batch_transaction import BatchTransaction, PendingRefusal, Result, Waiting
from chart.reservations.store.committed import Remembered

BATCH = 64
# Jobs that may wait; more are told to come back.
MOST_WAITING = 2_000

BATCHES = Histogram(
    "chart_reservations_admission_batch_ratio",
    "How full a transaction was",
    buckets=(1 / 64, 2 / 64, 4 / 64, 8 / 64, 16 / 64, 32 / 64, 48 / 64, 1),
)
COMMITTED = Histogram(
    "chart_reservations_admission_commit_seconds",
    "One transaction, from the first lock to the commit",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
)
PUT_OFF = Counter("chart_reservations_admission_put_off_total", "Jobs that needed more locks than they had")

_log = structlog.get_logger("chart.reservations")


class Batches:
    """The group commit of one replica."""

    def __init__(
        self,
        pool: Pool,
        network: Callable[[], Network],
        idempotency_us: int,
        clock: Clock,
        freed: Callable[[], None] = lambda: None,
        changed: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        """`freed` is told when a rate was given back, `changed` the requests of which changes were stored."""
        self._pool = pool
        self._network = network
        self._idempotency_us = idempotency_us
        self._clock = clock
        self._freed = freed
        self._changed = changed
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._known = Remembered()
        self._held: Connection | None = None

    async def submit(self, job: Job) -> Result:
        """Decide a job and store the outcome.

        Raises:
            RefusalError: it is not to be.
            psycopg.OperationalError, psycopg_pool.TooManyRequests: not now.
        """
        if self._queue.qsize() >= MOST_WAITING:
            msg = f"{MOST_WAITING} requests wait already"
            raise psycopg_pool.TooManyRequests(msg)
        waiting = Waiting(job, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(waiting)
        return await waiting.done

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                batch = [await self._queue.get()]
                while len(batch) < BATCH and not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                await self._serve(batch)
                if self._queue.empty():
                    await self._let_go()
        finally:
            await self._let_go()
            while not self._queue.empty():
                self._queue.get_nowait().done.cancel()

    async def _connection(self) -> Connection:
        """A connection, kept while batches follow each other: the pool tries each that it hands out."""
        if self._held is None:
            self._held = await self._pool.getconn()
        return self._held

    async def _let_go(self) -> None:
        """Give the connection back; the pool ends what is open on it, and replaces a broken one."""
        held, self._held = self._held, None
        if held is not None:
            await self._pool.putconn(held)

    async def _serve(self, batch: list[Waiting]) -> None:
        """One batch; when something of it cannot be stored, each job on its own, so that one does not spoil all."""
        batch = [one for one in batch if not one.done.done()]
        try:
            await self._transact(batch)
        except (psycopg.OperationalError, psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed) as error:
            self._fail(batch, error)
        except (psycopg.Error, UnknownBlockError) as error:
            self._known = Remembered()
            if len(batch) == 1:
                self._fail(batch, error)
                return
            _log.warning("a batch of admissions failed, each goes on its own", jobs=len(batch), reason=str(error))
            for one in batch:
                await self._serve([one])
        except asyncio.CancelledError:
            for one in batch:
                one.done.cancel()
            raise
        except Exception as error:
            self._known = Remembered()
            _log.exception("a batch of admissions failed", jobs=len(batch))
            self._fail(batch, error)

    def _fail(self, batch: list[Waiting], error: Exception) -> None:
        self._known = Remembered()
        for one in batch:
            if not one.done.done():
                one.done.set_exception(error)

    async def _transact(self, batch: list[Waiting]) -> None:
        if not batch:
            return
        now_us = self._clock.now_us()
        try:
            connection = await self._connection()
            transaction = BatchTransaction(connection, self._known, self._network(), now_us, self._idempotency_us)
            with COMMITTED.time():
                # Nothing waits for an answer that it does not need, the commit goes along with what is written.
                async with connection.pipeline(), connection.transaction():
                    again = await transaction.work(batch)
            for link_id in transaction.changes.touched_links:
                if link_id in self._known.versions:
                    self._known.versions[link_id] += 1
            self._known.shrink()
            BATCHES.observe(len(batch) / BATCH)
        except BaseException:
            await self._let_go()
            raise
        await self._explain(connection, transaction)
        freed = False
        for one, result in transaction.results:
            if one.done.done():
                continue
            if isinstance(result, Exception):
                one.done.set_exception(result)
            elif isinstance(result, PendingRefusal):
                one.done.set_exception(messages.refusal_error(result.refused))
            else:
                one.done.set_result(result)
                freed = freed or any(each.frees_capacity for each in result.decision.outcomes)
        self._changed(transaction.changes.request_ids)
        for one in again:
            PUT_OFF.inc()
            self._queue.put_nowait(one)
        if freed:
            self._freed()

    async def _explain(self, connection: Connection, transaction: BatchTransaction) -> None:
        """Complete the refusals of a transaction. It is committed: what cannot be read now is left out of them."""
        refusals = [result for _, result in transaction.results if isinstance(result, PendingRefusal)]
        if not refusals:
            return
        try:
            async with connection.transaction():
                await transaction.explain(refusals)
        except psycopg.Error as error:
            _log.warning("refusals go without a later start that fits", refused=len(refusals), reason=str(error))
            await self._let_go()
