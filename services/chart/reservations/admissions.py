"""Group commit: whatever is asked of admission while a transaction runs goes into the next one, up to 64 at once.

A transaction claims idempotency keys, locks the links concerned in id order, reads the blocks of their profiles that it
does not remember, decides one job after the other in memory, and writes everything by a few statements. So the cost of
a transaction, of locks and of the disk is shared, any number of replicas admit at once, and no link is over-committed.
A job that could only be granted at the cost of others is put off to a next transaction that also locks these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Histogram
from psycopg import AsyncCursor
from psycopg.rows import DictRow

from chart.common.clock import Clock
from chart.common.database import Connection, Pool
from chart.common.rpc_errors import RefusalError, not_found
from chart.reservations import jobs, loading, messages, quotas, reading
from chart.reservations.admission import Refused
from chart.reservations.answers import reused
from chart.reservations.engine import Book, Decision
from chart.reservations.jobs import Alter, Create, IdempotencyKey, Job
from chart.reservations.loading import Remembered
from chart.reservations.network import Network
from chart.reservations.profile import UnknownBlockError
from chart.reservations.quotas import Quota, Spending, Use
from chart.reservations.reservation import Reservation
from chart.reservations.writing import Changes, array
from chart.v1 import rate_request_pb2

BATCH = 64
# Jobs that may wait; more are told to come back.
MOST_WAITING = 2_000
# Transactions that a job may be put off for, because what it has to lock keeps changing.
MOST_TURNS = 4
ANY_RANK = 1 << 14

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


@dataclass(frozen=True)
class Result:
    """The outcome of a job."""

    request: Reservation | None = None
    decision: Decision = field(default_factory=Decision)
    # The stored answer of an earlier call with the same key.
    replayed: rate_request_pb2.RateRequest | None = None
    # The request as a message, where it was made already.
    message: rate_request_pb2.RateRequest | None = None


@dataclass
class Waiting:
    """A job with its caller."""

    job: Job
    done: asyncio.Future[Result]
    turns: int = 0
    # Links whose holders have to be there, since they may have to give way.
    around: tuple[str, ...] = ()
    # Set while a transaction works on it.
    holders: set[str] = field(default_factory=set)


class Admissions:
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
            transaction = _Transaction(connection, self._known, self._network(), now_us, self._idempotency_us)
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
            elif isinstance(result, _Refused):
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

    async def _explain(self, connection: Connection, transaction: _Transaction) -> None:
        """Complete the refusals of a transaction. It is committed: what cannot be read now is left out of them."""
        refusals = [result for _, result in transaction.results if isinstance(result, _Refused)]
        if not refusals:
            return
        try:
            async with connection.transaction():
                await transaction.explain(refusals)
        except psycopg.Error as error:
            _log.warning("refusals go without a later start that fits", refused=len(refusals), reason=str(error))
            await self._let_go()


@dataclass
class _Refused:
    """A refusal whose suggestions are still to be completed."""

    refused: Refused
    job: Job


class _Transaction:
    """What one transaction knows and does."""

    def __init__(
        self, connection: Connection, known: Remembered, network: Network, now_us: int, idempotency_us: int
    ) -> None:
        self._connection = connection
        self._known = known
        self._network = network
        self._now_us = now_us
        self._idempotency_us = idempotency_us
        self.changes = Changes()
        self.results: list[tuple[Waiting, Result | _Refused | Exception]] = []
        self._quotas: dict[str, Quota] = {}
        self._uses: dict[str, Use] = {}
        # Requests that have something on links that are not locked.
        self._unlocked: set[str] = set()
        # Jobs by their idempotency keys, and what claiming these answers.
        self._claims: dict[tuple[str, str], Waiting] = {}
        self._claimed: AsyncCursor[DictRow] | None = None
        # What is known already of the profiles: of these links all that these spans need.
        self._complete: set[str] = set()
        self._ahead: set[loading.Span] = set()

    async def work(self, batch: list[Waiting]) -> list[Waiting]:
        """Decide and write; returns the jobs that have to come again."""
        again: list[Waiting] = []
        batch = await self._claim(batch, again)
        known = await self._known_requests(batch)
        await self._read_quotas(batch, known)
        batch = await self._without_answered(batch)
        locked = await self._lock(batch, known)
        found = await self._read(batch, locked)
        book = Book(self._network, self._known.ledger, dict(found), holders_known=False)
        missed: list[IdempotencyKey] = []
        for one in batch:
            if not self._decide(one, book, found, locked):
                again.append(one)
                missed += filter(None, [_key(one.job)])
        for one, result in self.results:
            key = _key(one.job)
            if key is not None and isinstance(result, Exception | _Refused):
                missed.append(key)
        for track, changed in loading.take_changes(self._known.ledger).items():
            self.changes.profile(track, changed)
        await self.changes.write(self._connection)
        if missed:
            # A refusal is not kept: the same request may be granted later.
            await self._connection.execute(
                "DELETE FROM idempotency_key k USING unnest(%s::text[], %s::text[]) AS t(owner, key)"
                " WHERE k.owner = t.owner AND k.key = t.key AND k.answer IS NULL",
                (array(key.owner for key in missed), array(key.key for key in missed)),
            )
        return again

    async def explain(self, refusals: Sequence[_Refused]) -> None:
        """Complete refusals with the next start that fits, from what is committed now."""
        link_ids = {link_id for one in refusals for link_id in one.refused.link_ids}
        listed = await loading.commitments(self._connection, link_ids, self._now_us)
        for one in refusals:
            asks = one.job.asks(self._network, {}, self._now_us)
            if asks:
                one.refused = reading.with_start(one.refused, self._network, listed, asks[0])

    async def _claim(self, batch: list[Waiting], again: list[Waiting]) -> list[Waiting]:
        """Take the idempotency keys; `_without_answered` looks at the outcome. Waits for a call under way with the
        same key at another replica; a second one in this batch comes again.
        """
        claims: dict[tuple[str, str], Waiting] = {}
        left = []
        for one in batch:
            key = _key(one.job)
            if key is None:
                left.append(one)
            elif (key.owner, key.key) in claims:
                again.append(one)
            else:
                claims[key.owner, key.key] = one
                left.append(one)
        if not claims:
            return left
        keys = [key for _, key in sorted((pair, _key(one.job)) for pair, one in claims.items()) if key is not None]
        self._claims = claims
        self._claimed = await self._connection.execute(
            "INSERT INTO idempotency_key AS k (owner, key, body_hash, created_at_us) SELECT owner, key, body_hash, %s"
            " FROM unnest(%s::text[], %s::text[], %s::bytea[]) AS t(owner, key, body_hash)"
            " ON CONFLICT (owner, key) DO UPDATE SET body_hash = excluded.body_hash,"
            " created_at_us = excluded.created_at_us, answer = NULL WHERE k.created_at_us < %s RETURNING owner, key",
            (
                self._now_us,
                array(key.owner for key in keys),
                array(key.key for key in keys),
                array(key.body_hash for key in keys),
                self._now_us - self._idempotency_us,
            ),
        )
        return left

    async def _without_answered(self, batch: list[Waiting]) -> list[Waiting]:
        """The jobs without those whose key has an answer already; these get it."""
        if self._claimed is None:
            return batch
        taken = {(row["owner"], row["key"]) for row in await self._claimed.fetchall()}
        replays = {pair: one for pair, one in self._claims.items() if pair not in taken}
        if not replays:
            return batch
        await self._replay(replays)
        return [one for one in batch if not any(one is replayed for replayed in replays.values())]

    async def _replay(self, replays: dict[tuple[str, str], Waiting]) -> None:
        rows = await self._connection.execute(
            "SELECT k.owner, k.key, k.body_hash, k.answer FROM idempotency_key k JOIN unnest(%s::text[], %s::text[])"
            " AS t(owner, key) ON k.owner = t.owner AND k.key = t.key",
            (array(owner for owner, _ in replays), array(key for _, key in replays)),
        )
        for row in await rows.fetchall():
            one = replays[row["owner"], row["key"]]
            key = _key(one.job)
            assert key is not None
            if bytes(row["body_hash"]) != key.body_hash:
                self.results.append((one, reused()))
            else:
                answer = rate_request_pb2.RateRequest.FromString(bytes(row["answer"]))
                self.results.append((one, Result(replayed=answer)))

    async def _known_requests(self, batch: list[Waiting]) -> dict[str, Reservation]:
        """The requests that jobs are about, as they are before anything is locked."""
        identities = {identity for one in batch for identity in one.job.request_ids()}
        return await loading.load_requests(self._connection, identities, lock=False)

    async def _read_quotas(self, batch: list[Waiting], known: dict[str, Reservation]) -> None:
        """Quotas of those who ask for something, and what they have; others cannot ask meanwhile."""
        owners = {one.job.owner for one in batch if isinstance(one.job, Create)}
        # Whoever changes a request, it is its owner's quota that it takes from.
        altered = {one.job.request_id for one in batch if isinstance(one.job, Alter)}
        owners |= {known[identity].owner for identity in altered & known.keys()}
        if not owners:
            return
        self._quotas = await reading.quotas_of(self._connection, owners)
        bound = sorted(owner for owner in owners if quotas.of(owner, self._quotas) is not None)
        if bound:
            await self._connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('quota'), hashtext(owner)) FROM unnest(%s::text[]) AS owner",
                (array(bound),),
            )
            self._uses = await reading.uses_of(self._connection, bound)

    async def _lock(self, batch: list[Waiting], known: dict[str, Reservation]) -> set[str]:
        """Lock the links of all jobs: of requests that are there already those that they have, read before."""
        wanted: set[str] = set()
        for one in batch:
            wanted |= jobs.links(one.job, self._network, known, self._now_us)
            if one.around:
                wanted |= await self._around(one)
        for one in batch:
            # What is there already may be another one once it is locked.
            if isinstance(one.job, Create):
                self._ahead.update(jobs.spans(one.job, self._network, known, self._now_us))
        self._complete = await loading.lock_links(self._connection, wanted, self._ahead, self._known, self.changes)
        return wanted

    async def _around(self, one: Waiting) -> set[str]:
        """Links of those who may have to give way for a job."""
        one.holders = set(await loading.holder_ids(self._connection, one.around, ANY_RANK, self._now_us, _END))
        held = await loading.links_of(self._connection, one.holders)
        return set(one.around).union(*held.values())

    async def _read(self, batch: list[Waiting], locked: set[str]) -> dict[str, Reservation]:
        """Lock and read the requests concerned, and the blocks of the profiles that decisions will look at."""
        identities = {identity for one in batch for identity in one.job.request_ids()}
        holders = {identity for one in batch for identity in one.holders}
        found = await loading.load_requests(self._connection, identities | holders, lock=True)
        spans: set[loading.Span] = {span for span in self._ahead if span[0] not in self._complete}
        for one in batch:
            if not isinstance(one.job, Create):
                spans.update(jobs.spans(one.job, self._network, found, self._now_us))
        for identity in holders & found.keys():
            spans.update(loading.spans_of(found[identity]))
        # What is not locked may change under us: such a holder does not give way, such a job comes again.
        self._unlocked = {
            identity for identity, one in found.items() if any(held.link_id not in locked for held in one.commitments)
        }
        await loading.load_profiles(self._connection, [span for span in spans if span[0] in locked], self._known.ledger)
        return {identity: one for identity, one in found.items() if identity not in self._unlocked}

    def _decide(self, one: Waiting, book: Book, found: dict[str, Reservation], locked: set[str]) -> bool:
        """Decide a job; False: it has to come again with more locks."""
        job = one.job
        one.turns += 1
        if not isinstance(job, Create) and one.turns < MOST_TURNS:
            # Of a new request all is locked: it asks for the same as before.
            wanted = jobs.links(job, self._network, book.reservations, self._now_us)
            if not wanted <= locked:
                return False
        if job.request_id and job.request_id not in book.reservations:
            if job.request_id in self._unlocked and one.turns < MOST_TURNS:
                return False
            self.results.append((one, not_found("rate request", job.request_id)))
            return True
        before = dict(book.reservations)
        book.holders_known = bool(one.around)
        try:
            self._spend(job, before)
            decision = job.decide(book, self._now_us)
        except RefusalError as error:
            self.results.append((one, error))
            return True
        if decision.needs_holders:
            one.around = decision.needs_holders
            if one.turns < MOST_TURNS:
                return False
        if decision.refused is not None:
            self.results.append((one, _Refused(decision.refused, job)))
            return True
        self.results.append((one, self._stored(job, decision, before, book)))
        return True

    def _spend(self, job: Job, known: dict[str, Reservation]) -> None:
        """Count a job against its owner's quota."""
        spending: Spending | None = None
        if isinstance(job, Create):
            spending = job.spending
        elif isinstance(job, Alter):
            spending = job.spending(known[job.request_id])
        quota = quotas.of(spending.owner, self._quotas) if spending else None
        if spending is None or quota is None:
            return
        use = self._uses.get(spending.owner, Use())
        quotas.check(quota, use, spending, self._now_us)
        self._uses[spending.owner] = use.after(spending)

    def _stored(self, job: Job, decision: Decision, before: dict[str, Reservation], book: Book) -> Result:
        """Note what has to be written; the request that the job is about as it will be stored."""
        mine: Reservation | None = before.get(job.request_id)
        for outcome in decision.outcomes:
            identity = outcome.reservation.id
            own = identity == job.request_id or (isinstance(job, Create) and identity == job.identity)
            actor = job.actor if own else "reservations"
            after = self.changes.save(before.get(identity), outcome, actor, self._now_us)
            book.reservations[identity] = after
            if own:
                mine = after
        key = _key(job)
        if key is None or mine is None:
            return Result(mine, decision)
        message, stored = self.changes.message(mine)
        self.changes.answer(key.owner, key.key, key.body_hash, self._now_us, stored)
        return Result(mine, decision, message=message)


_END = (1 << 63) - 1 - 2_000_000


def _key(job: Job) -> IdempotencyKey | None:
    return job.key if isinstance(job, Create) else None
