"""One transaction of the group commit: what it claims, locks and reads for its jobs, decides, and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg import AsyncCursor
from psycopg.rows import DictRow

from chart.common.database import Connection
from chart.common.rpc_errors import RefusalError, not_found
from chart.reservations.decisions import jobs, messages, quotas
from chart.reservations.decisions.admission import Refused
from chart.reservations.decisions.engine import Book, Decision
from chart.reservations.decisions.jobs import Alter, Create, IdempotencyKey, Job
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.quotas import Quota, Spending, Use
from chart.reservations.decisions.reservation import Reservation
from chart.reservations.store import committed, holders, idempotency, previews
from chart.reservations.store import quotas as quota_store
from chart.reservations.store.changes import Changes
from chart.reservations.store.committed import Remembered
from chart.v1 import rate_request_pb2

# Transactions that a job may be put off for, because what it has to lock keeps changing.
MOST_TURNS = 4


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


@dataclass
class PendingRefusal:
    """A refusal whose suggestions are still to be completed."""

    refused: Refused
    job: Job


class BatchTransaction:
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
        self.results: list[tuple[Waiting, Result | PendingRefusal | Exception]] = []
        self._quotas: dict[str, Quota] = {}
        self._uses: dict[str, Use] = {}
        # Requests that have something on links that are not locked.
        self._unlocked: set[str] = set()
        # Jobs by their idempotency keys, and what claiming these answers.
        self._claims: dict[tuple[str, str], Waiting] = {}
        self._claimed: AsyncCursor[DictRow] | None = None
        # What is known already of the profiles: of these links all that these spans need.
        self._complete: set[str] = set()
        self._ahead: set[committed.Span] = set()

    async def work(self, batch: list[Waiting]) -> list[Waiting]:
        """Decide and write; returns the jobs that have to come again."""
        again: list[Waiting] = []
        batch = await self._claim(batch, again)
        known = await self._known_requests(batch)
        await self._read_quotas(batch, known)
        self._bound_by_quotas(batch)
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
            if key is not None and isinstance(result, Exception | PendingRefusal):
                missed.append(key)
        for track, changed in committed.take_changes(self._known.ledger).items():
            self.changes.profile(track, changed)
        for link_id, drains in committed.take_drains(self._known.ledger, self._now_us).items():
            self.changes.draining(link_id, drains)
        await self.changes.write(self._connection)
        # A refusal is not kept: the same request may be granted later.
        await idempotency.give_back(self._connection, missed)
        return again

    async def explain(self, refusals: Sequence[PendingRefusal]) -> None:
        """Complete refusals with the next start that fits, from what is committed now."""
        link_ids = {link_id for one in refusals for link_id in one.refused.link_ids}
        listed = await committed.commitments(self._connection, link_ids, self._now_us)
        for one in refusals:
            asks = one.job.asks(self._network, {}, self._now_us)
            if asks:
                one.refused = previews.with_start(one.refused, self._network, listed, asks[0])

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
        self._claimed = await idempotency.claim(self._connection, keys, self._now_us, self._idempotency_us)
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
        for place, row in (await idempotency.answers(self._connection, list(replays))).items():
            one = replays[place]
            key = _key(one.job)
            assert key is not None
            if bytes(row["body_hash"]) != key.body_hash:
                self.results.append((one, messages.reused()))
            else:
                answer = rate_request_pb2.RateRequest.FromString(bytes(row["answer"]))
                self.results.append((one, Result(replayed=answer)))

    async def _known_requests(self, batch: list[Waiting]) -> dict[str, Reservation]:
        """The requests that jobs are about, as they are before anything is locked."""
        identities = {identity for one in batch for identity in one.job.request_ids()}
        return await holders.requests(self._connection, identities, lock=False)

    async def _read_quotas(self, batch: list[Waiting], known: dict[str, Reservation]) -> None:
        """Quotas of those who ask for something, and what they have; others cannot ask meanwhile."""
        askers = {(one.job.owner, one.job.operator) for one in batch if isinstance(one.job, Create)}
        # Whoever changes a request, it is its owner's quota that it takes from.
        altered = {(one.job.request_id, one.job.operator) for one in batch if isinstance(one.job, Alter)}
        askers |= {(known[identity].owner, operator) for identity, operator in altered if identity in known}
        if not askers:
            return
        self._quotas = await quota_store.quotas_of(self._connection, {owner for owner, _ in askers})
        bound = sorted(
            {owner for owner, operator in askers if quotas.of(owner, self._quotas, operator=operator) is not None}
        )
        if bound:
            await quota_store.lock(self._connection, bound)
            self._uses = await quota_store.uses_of(self._connection, bound)

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
        self._complete = await committed.lock_links(self._connection, wanted, self._ahead, self._known, self.changes)
        return wanted

    async def _around(self, one: Waiting) -> set[str]:
        """Links of those who may have to give way for a job."""
        one.holders = set(await holders.holder_ids(self._connection, one.around, holders.ANY_RANK, self._now_us, _END))
        held = await holders.links_of(self._connection, one.holders)
        return set(one.around).union(*held.values())

    async def _read(self, batch: list[Waiting], locked: set[str]) -> dict[str, Reservation]:
        """Lock and read the requests concerned, and the blocks of the profiles that decisions will look at."""
        identities = {identity for one in batch for identity in one.job.request_ids()}
        around = {identity for one in batch for identity in one.holders}
        found = await holders.requests(self._connection, identities | around, lock=True)
        spans: set[committed.Span] = {span for span in self._ahead if span[0] not in self._complete}
        for one in batch:
            if not isinstance(one.job, Create):
                spans.update(jobs.spans(one.job, self._network, found, self._now_us))
        for one in batch:
            for identity in one.holders & found.keys():
                theirs = committed.spans_of(found[identity])
                spans.update(theirs)
                if one.job.enters is not None:
                    spans.update(jobs.entry_spans((span[0] for span in theirs), self._now_us, one.job.enters))
        # What is not locked may change under us: such a holder does not give way, such a job comes again.
        self._unlocked = {
            identity for identity, one in found.items() if any(held.link_id not in locked for held in one.commitments)
        }
        await committed.load_profiles(
            self._connection, [span for span in spans if span[0] in locked], self._known.ledger
        )
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
            if isinstance(job, Alter):
                job.permitted(before[job.request_id])
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
            self.results.append((one, PendingRefusal(decision.refused, job)))
            return True
        self.results.append((one, self._stored(job, decision, before, book)))
        return True

    def _bound_by_quotas(self, batch: list[Waiting]) -> None:
        """Requests without an end get the last one that their owner's quota allows, before it is read what the profiles
        say about that time.
        """
        for one in batch:
            job = one.job
            if isinstance(job, Create):
                own = quotas.of(job.owner, self._quotas, operator=job.operator)
                job.checked = quotas.with_end(job.checked, own, self._now_us)

    def _spend(self, job: Job, known: dict[str, Reservation]) -> None:
        """Count a job against its owner's quota."""
        spending: Spending | None = None
        if isinstance(job, Create):
            spending = job.spending
        elif isinstance(job, Alter):
            spending = job.spending(known[job.request_id])
        quota = quotas.of(spending.owner, self._quotas, operator=spending.operator) if spending else None
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
