"""What reservations keeps, in the database in memory: the rows and locks of the repository over PostgreSQL.

Admission locks the links concerned in id order, then the requests concerned in id order, reads the links' profiles
(stored as blocks, as in PostgreSQL) and lets the engine decide; requests, commitments, profiles, idempotency keys and
outbox change in that one transaction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from chart.common.rpc_errors import RefusalError, not_found
from chart.reservations.decisions import engine, in_band, messages, notices, room
from chart.reservations.decisions.admission import tracks_of
from chart.reservations.decisions.engine import Book, Decision
from chart.reservations.decisions.in_band import Lease
from chart.reservations.decisions.jobs import Drained
from chart.reservations.decisions.ledger import Drain, Kind, Ledger, LinkCommitment
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.profile import Block, LinkProfile
from chart.reservations.decisions.reservation import Outcome, Reservation, Timing
from chart.v1 import gr_lease_pb2, rate_request_pb2, reservations_pb2
from chart_lab.simulation.database import Database, Row, Transaction
from chart_lab.simulation.processes import Process

FLOW_GRANT = "chart.flow-grant.v1"
RATE_REQUEST = "chart.rate-request.v1"
GR_LEASE = "chart.gr-lease.v1"

Decide = Callable[[Book], Decision]


@dataclass(frozen=True)
class Key:
    """An idempotency key and the fingerprint of what came with it."""

    owner: str
    key: str
    body_hash: bytes


def _waits(notice: Row) -> bool:
    return bool(notice["state"] == notices.PENDING)


class Repository:
    """Reads and changes of one life of a replica."""

    def __init__(self, database: Database, process: Process, timing: Timing) -> None:
        self._timing = timing
        self._database = database
        self._process = process

    async def create(
        self, network: Network, link_ids: Sequence[str], decide: Decide, key: Key
    ) -> rate_request_pb2.RateRequest:
        """Admit a request; a repetition gets the answer of the first time. `decide` is told the locked book.

        Raises:
            RefusalError: refused, or the key was used for another body.
        """
        answer: list[rate_request_pb2.RateRequest] = []

        async def claim(transaction: Transaction) -> bool:
            earlier = await self._claim(transaction, key)
            answer[:] = [earlier] if earlier is not None else []
            return earlier is None

        async def done(transaction: Transaction, decision: Decision) -> None:
            if decision.refused is not None:
                raise messages.refusal_error(decision.refused)
            made = messages.rate_request(decision.outcomes[-1].reservation)
            row = {"body_hash": key.body_hash, "answer": made.SerializeToString()}
            await transaction.write("idempotency_key", (key.owner, key.key), row)
            answer[:] = [made]

        await self.decide(network, link_ids, decide, before=claim, after=done)
        return answer[0]

    async def decide(
        self,
        network: Network,
        link_ids: Iterable[str],
        decide: Decide,
        *,
        request_ids: Sequence[str] = (),
        holders: bool = False,
        before: Callable[[Transaction], object] | None = None,
        after: Callable[[Transaction, Decision], object] | None = None,
    ) -> Decision:
        """Let the engine decide while nobody else can change the links, the named requests and, if it needs them, the
        holders of the links; store what it decided.
        """
        wanted = set(link_ids)
        while True:
            wanted.update(tracks_of(network, wanted))
            async with self._database.transaction(self._process) as transaction:
                if before is not None and not await before(transaction):  # type: ignore[misc]
                    return Decision()
                await self._lock_links(transaction, wanted)
                concerned = set(request_ids)
                if holders:
                    concerned |= {row[0] for row, _ in transaction.scan("commitment") if row[1] in wanted}
                reservations = await self._lock_requests(transaction, concerned)
                touched = {
                    held.link_id for one in reservations.values() for held in (*one.commitments, *room.holds(one))
                }
                # A request may prefer a path that it was given since the caller looked at it.
                touched |= {
                    link_id for one in request_ids if one in reservations for link_id in reservations[one].link_ids
                }
                if touched <= wanted:
                    book = Book(network, self._ledger(transaction, wanted), reservations, holders)
                    decision = decide(book)
                    if not decision.needs_holders:
                        await transaction.pause()
                        await self._store(transaction, decision.outcomes)
                        await self._store_ledger(transaction, book.ledger)
                        if after is not None:
                            await after(transaction, decision)  # type: ignore[misc]
                        return decision
                    wanted |= set(decision.needs_holders)
                    holders = True
                # More links are concerned than are locked: once more with all of them, in their order.
                wanted |= touched

    async def change(
        self, network: Network, request_id: str, owner: str, change: Callable[[Reservation], Outcome | None]
    ) -> Reservation:
        """Change one request by what `service` says.

        Raises:
            RefusalError: NOT_FOUND.
        """
        found = await self.get(request_id, owner)

        def decide(book: Book) -> Decision:
            outcome = change(book.reservations[request_id])
            if outcome is None:
                return Decision()
            done = engine.apply(book, outcome, self._process.clock.now_us(), self._timing)
            assert done is not None
            return Decision((done,))

        links = [held.link_id for held in found.commitments]
        decision = await self.decide(network, links, decide, request_ids=[request_id])
        return decision.outcomes[0].reservation if decision.outcomes else await self.get(request_id, owner)

    async def observe(
        self, request_ids: Iterable[str], change: Callable[[Reservation], Outcome | None]
    ) -> list[Outcome]:
        """Change requests by the statuses of nodes: no link is concerned."""
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            found = await self._lock_requests(transaction, request_ids)
            outcomes = [outcome for one in found.values() if (outcome := change(one)) is not None]
            await self._store(transaction, outcomes)
            return outcomes

    async def drained(self, network: Network, parts: Sequence[tuple[str, Drain]]) -> None:
        """Rates of requests that no node applies any more."""
        job = Drained(tuple(parts))
        links = [part.link_id for _, part in parts]
        await self.decide(network, links, lambda book: job.decide(book, self._process.clock.now_us()))

    async def get(self, request_id: str, owner: str = "") -> Reservation:
        """One request; `owner` empty: anybody's.

        Raises:
            RefusalError: NOT_FOUND, also when it is somebody else's.
        """
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            row = transaction.read("rate_request", request_id)
        if row is None or owner not in ("", row["reservation"].owner):
            raise not_found("rate request", request_id)
        reservation: Reservation = row["reservation"]
        return reservation

    async def every(self) -> list[Reservation]:
        """All requests, as of now, unlocked."""
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            return [row["reservation"] for _, row in transaction.scan("rate_request")]

    async def ledger(self, link_ids: Iterable[str]) -> Ledger:
        """What is committed on links, unlocked: for previews."""
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            return self._ledger(transaction, link_ids)

    async def leases(self) -> dict[str, Lease]:
        """What may be drawn in band, by link."""
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            return {link_id: row["lease"] for link_id, row in transaction.scan("lease")}

    async def renew_lease(
        self, network: Network, link_id: str, drawn_bps: int, now_us: int, rule: in_band.LeaseRule
    ) -> None:
        """Renew what may be drawn in band on a link, unless another replica just did."""
        async with self._database.transaction(self._process) as transaction:
            await self._lock_links(transaction, [link_id])
            row = transaction.read("lease", link_id)
            current: Lease | None = row["lease"] if row is not None else None
            if not in_band.due(current, drawn_bps, now_us):
                return
            ledger = self._ledger(transaction, [link_id])
            lease = in_band.renew(network.links[link_id], ledger, current, drawn_bps, now_us, rule)
            if lease is None:
                return
            await transaction.write("lease", link_id, {"lease": lease})
            name = f"lease of {link_id}"
            await self._commit_rows(transaction, name, current.commitments if current else (), lease.commitments)
            await self._store_ledger(transaction, ledger)
            record = gr_lease_pb2.GrLease(
                link_id=link_id,
                generation=lease.generation,
                lease_bps=lease.rate_bps,
                valid_from_us=lease.issued_at_us,
                valid_until_us=lease.valid_until_us,
            )
            await self._queue(transaction, GR_LEASE, link_id, record)

    async def take_notices(self, now_us: int, taken_us: int, most: int) -> list[tuple[int, Row]]:
        """Notices whose time has come, of each request only the oldest that waits; they are others' no more for a
        while.
        """
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            waiting = sorted((number, row) for number, row in transaction.scan("callback") if _waits(row))
            oldest: dict[str, int] = {}
            for number, row in waiting:
                oldest.setdefault(row["request_id"], number)
            taken: list[tuple[int, Row]] = []
            for number in oldest.values():
                if len(taken) == most or not transaction.try_lock("callback", number):
                    continue
                found = transaction.read("callback", number)
                if found is not None and _waits(found) and found["next_attempt_us"] <= now_us:
                    await transaction.write("callback", number, {**found, "next_attempt_us": now_us + taken_us})
                    taken.append((number, found))
            return taken

    async def note_notice(self, number: int, state: int, attempts: int, again_us: int, now_us: int) -> None:
        """The outcome of an attempt, and what it means for the request."""
        async with self._database.transaction(self._process) as transaction:
            await transaction.pause()
            row = transaction.read("callback", number)
            # Whoever adds a notice has its request locked: none is added until this is committed.
            requests = await self._lock_requests(transaction, [row["request_id"]] if row is not None else [])
            await transaction.lock("callback", number)
            row = transaction.read("callback", number)
            if row is None or not _waits(row):
                return
            noted = {**row, "state": state, "attempts": attempts, "next_attempt_us": again_us}
            await transaction.write("callback", number, noted)
            others = [one for _, one in transaction.scan("callback") if one["request_id"] == row["request_id"]]
            if state == notices.PENDING or any(_waits(one) for one in others):
                return
            for one in requests.values():
                outcome = notices.settled(one, state == notices.DELIVERED, now_us)
                await self._store(transaction, [outcome] if outcome is not None else [])

    async def _claim(self, transaction: Transaction, key: Key) -> rate_request_pb2.RateRequest | None:
        await transaction.pause()
        place = (key.owner, key.key)
        await transaction.lock("idempotency_key", place)
        row = transaction.read("idempotency_key", place)
        if row is None:
            return None
        if row["body_hash"] != key.body_hash:
            raise RefusalError(reservations_pb2.Refusal(code="idempotency-key-reused", field="idempotency_key"))
        return rate_request_pb2.RateRequest.FromString(row["answer"])

    async def _lock_links(self, transaction: Transaction, link_ids: Iterable[str]) -> None:
        await transaction.pause()
        for link_id in sorted(link_ids):
            await transaction.lock("link", link_id)

    async def _lock_requests(self, transaction: Transaction, request_ids: Iterable[str]) -> dict[str, Reservation]:
        await transaction.pause()
        found = {}
        for request_id in sorted(set(request_ids)):
            if transaction.read("rate_request", request_id) is not None:
                await transaction.lock("rate_request", request_id)
                row = transaction.read("rate_request", request_id)
                if row is not None:
                    found[request_id] = row["reservation"]
        return found

    @staticmethod
    def _ledger(transaction: Transaction, link_ids: Iterable[str]) -> Ledger:
        # Only of these links it is known what is committed; a look at another one is an error.
        ledger = Ledger(complete=False)
        for link_id in link_ids:
            ledger.tracks.update({(link_id, kind): LinkProfile(complete=True) for kind in room.kinds_of(link_id)})
            row = transaction.read("profile", link_id)
            for (kind, *key), packed in (row or {}).items():
                ledger.track(link_id, Kind(kind)).put((key[0], key[1]), Block.unpack(packed))
            draining = transaction.read("draining", link_id) or {}
            ledger.draining[link_id] = {name: Drain(*part) for name, part in draining.items()}
        return ledger

    @staticmethod
    async def _store_ledger(transaction: Transaction, ledger: Ledger) -> None:
        for (link_id, kind), profile in list(ledger.tracks.items()):
            changes = profile.take_changes()
            if changes:
                row = transaction.read("profile", link_id) or {}
                for key, block in sorted(changes.items()):
                    if block is None:
                        row.pop((int(kind), *key), None)
                    else:
                        row[int(kind), *key] = block.pack()
                await transaction.write("profile", link_id, row)
        for link_id in sorted(ledger.drain_touched):
            draining = {name: dataclasses.astuple(part) for name, part in ledger.draining[link_id].items()}
            await transaction.write("draining", link_id, draining)

    async def _store(self, transaction: Transaction, outcomes: Iterable[Outcome]) -> None:
        for decided in outcomes:
            row = transaction.read("rate_request", decided.reservation.id)
            before: Reservation | None = row["reservation"] if row is not None else None
            outcome, event = notices.noted(before, decided)
            one = outcome.reservation
            await transaction.write("rate_request", one.id, {"reservation": one, "action": outcome.action})
            await self._commit_rows(transaction, one.id, before.commitments if before else (), one.commitments)
            await self._tell(transaction, outcome)
            if event:
                await self._notice(transaction, one, event)

    async def _notice(self, transaction: Transaction, one: Reservation, event: str) -> None:
        number = self._database.next_number()
        row = {
            "id": f"msg_{number}",
            "request_id": one.id,
            "owner": one.owner,
            "body": notices.body(event, one),
            "state": notices.PENDING,
            "attempts": 0,
            "created_at_us": one.updated_at_us,
            "next_attempt_us": one.updated_at_us,
        }
        await transaction.write("callback", number, row)

    async def _commit_rows(
        self,
        transaction: Transaction,
        name: str,
        before: Sequence[LinkCommitment],
        after: Sequence[LinkCommitment],
    ) -> None:
        if before == after:
            return
        for number, held in enumerate(before):
            await transaction.write("commitment", (name, held.link_id, number), None)
        for number, held in enumerate(after):
            await transaction.write("commitment", (name, held.link_id, number), dataclasses.asdict(held))

    async def _tell(self, transaction: Transaction, outcome: Outcome) -> None:
        one = outcome.reservation
        if outcome.grant:
            record = messages.grant_record(one) if outcome.grant == "put" else None
            await self._queue(transaction, FLOW_GRANT, one.id, record)
        if outcome.forget:
            await self._queue(transaction, RATE_REQUEST, one.id, None)
        elif outcome.announce:
            await self._queue(transaction, RATE_REQUEST, one.id, messages.rate_request(one))

    async def _queue(self, transaction: Transaction, topic: str, key: str, record: Message | None) -> None:
        payload = None if record is None else record.SerializeToString()
        row = {"topic": topic, "key": key, "payload": payload}
        await transaction.write("outbox", self._database.next_number(), row)
