"""What a transaction writes: requests, commitments, profiles, notices, receipts, audit and outgoing records, each table
by one statement over arrays, all sent together. Half of it is never there: it is one transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ulid import ULID

from chart.common import audit, telemetry
from chart.common.database import Connection
from chart.reservations.decisions import messages, notices
from chart.reservations.decisions.ledger import Drain, LinkCommitment, Track
from chart.reservations.decisions.profile import Block, Key
from chart.reservations.decisions.reservation import Outcome, Reservation
from chart.reservations.store import rows
from chart.reservations.store.arrays import array, columns, many
from chart.v1 import audit_pb2, rate_request_pb2

FLOW_GRANT = "chart.flow-grant.v1"
RATE_REQUEST = "chart.rate-request.v1"
SERVICE_ACTOR = "reservations"

_TYPES = ", ".join(f"%s::{rows.TYPES.get(name, 'bigint').replace('jsonb', 'text')}[]" for name in rows.COLUMNS)


def _column(name: str) -> str:
    if name in rows.JOINED:
        return f"string_to_array(t.{name}, E'\\x1f')"
    return f"t.{name}::jsonb" if rows.TYPES.get(name) == "jsonb" else f"t.{name}"


# Built from names of columns only.
_TABLE = f"unnest({_TYPES}) AS t({', '.join(rows.COLUMNS)})"
_INSERT = (
    f"INSERT INTO rate_request ({', '.join(rows.COLUMNS)})"  # noqa: S608
    f" SELECT {', '.join(_column(name) for name in rows.COLUMNS)} FROM {_TABLE}"
)
_UPDATE = (
    f"UPDATE rate_request r SET {', '.join(f'{name} = {_column(name)}' for name in rows.COLUMNS if name != 'id')}"  # noqa: S608
    f" FROM {_TABLE} WHERE r.id = t.id"
)
# Several tables by one statement each: to send and to begin a statement costs as much as some rows of it.
_STORE = (
    "WITH stored AS (INSERT INTO profile (link_id, kind, level, number, cells) SELECT * FROM unnest(%s::text[],"
    " %s::smallint[], %s::smallint[], %s::bigint[], %s::bytea[]) ON CONFLICT (link_id, kind, level, number)"
    " DO UPDATE SET cells = excluded.cells)"
    " UPDATE link l SET version = l.version + t.profiled, stale = l.stale AND t.profiled = 0,"
    " draining = coalesce(t.draining::jsonb, l.draining) FROM unnest(%s::text[], %s::bigint[], %s::text[])"
    " AS t(id, profiled, draining) WHERE l.id = t.id"
)
_TELL = (
    # The keys are there, claimed; they are found by the index whatever the planner believes of the table's size.
    "WITH answered AS (INSERT INTO idempotency_key (owner, key, body_hash, created_at_us, answer) SELECT * FROM"
    " unnest(%s::text[], %s::text[], %s::bytea[], %s::bigint[], %s::bytea[])"
    " ON CONFLICT (owner, key) DO UPDATE SET answer = excluded.answer),"
    " noted AS (INSERT INTO audit (id, at, actor, action, subject, detail, trace_id) SELECT id, to_timestamp(at),"
    " actor, action, subject, detail::jsonb, trace_id FROM unnest(%s::text[], %s::float8[], %s::text[], %s::text[],"
    " %s::text[], %s::text[], %s::text[]) AS t(id, at, actor, action, subject, detail, trace_id)),"
    " told AS (INSERT INTO outbox (topic, key, payload, headers) SELECT topic, key, payload, headers::jsonb FROM"
    " unnest(%s::text[], %s::text[], %s::bytea[], %s::text[]) AS t(topic, key, payload, headers))"
    " SELECT pg_notify('outbox_' || current_schema(), '')"
)


class Changes:
    """Everything that one transaction is going to write."""

    def __init__(self) -> None:
        self._first: dict[str, Reservation | None] = {}
        self._last: dict[str, Reservation] = {}
        self._confirmations: list[tuple[str, str, bytes]] = []
        self._outbox: list[tuple[str, str, bytes | None, str]] = []
        self._audit: list[tuple[Any, ...]] = []
        self._callbacks: list[tuple[Any, ...]] = []
        self._receipts: dict[str, tuple[str, bytes, int]] = {}
        # Contents by link, kind, level and number; a block that is changed twice is written once, as it is in the end.
        self._blocks: dict[tuple[str, int, int, int], bytes | None] = {}
        self._answers: list[tuple[str, str, bytes, int, bytes]] = []
        # Requests as messages, as they were told last.
        self._messages: dict[str, tuple[Reservation, rate_request_pb2.RateRequest, bytes]] = {}
        self._links: set[str] = set()
        # What drains on links, as JSON.
        self._draining: dict[str, str] = {}
        self._leases: list[tuple[Any, ...]] = []
        self._commitments: list[tuple[str, int, LinkCommitment]] = []
        self._freed: list[str] = []

    def save(self, before: Reservation | None, outcome: Outcome, actor: str, now_us: int) -> Reservation:
        """Note a changed request and all that has to be told about it; returns it as it will be stored."""
        outcome, event = notices.noted(before, outcome)
        after = outcome.reservation
        self._first.setdefault(after.id, before)
        self._last[after.id] = after
        if before is not None:
            for node, status in after.confirmations.items():
                if before.confirmations.get(node) is not status:
                    self._confirmations.append((after.id, node, status.SerializeToString()))
        if event:
            identity = f"msg_{ULID()}"
            body = notices.body(event, after)
            row = (identity, after.id, after.owner, event, after.specification.callback_url, body)
            self._callbacks.append((*row, after.updated_at_us, after.traceparent))
        if after.ended_at_us and not outcome.forget:
            statement = messages.receipt(after, now_us).SerializeToString()
            self._receipts[after.id] = (after.owner, statement, now_us)
        self._tell(outcome, actor)
        return after

    def answer(self, owner: str, key: str, body_hash: bytes, now_us: int, message: bytes) -> None:
        """Keep what an idempotency key answers that was claimed in this transaction."""
        self._answers.append((owner, key, body_hash, now_us, message))

    def message(self, after: Reservation) -> tuple[rate_request_pb2.RateRequest, bytes]:
        """A request as a message and its bytes; made once for the stream, the key and the caller."""
        known = self._messages.get(after.id)
        if known is None or known[0] is not after:
            made = messages.rate_request(after)
            known = self._messages[after.id] = after, made, made.SerializeToString()
        return known[1], known[2]

    def profile(self, track: Track, changed: dict[Key, Block | None]) -> None:
        """Store blocks of a link's profile; None: empty now."""
        link_id, kind = track
        self._links.add(link_id)
        for (level, number), block in changed.items():
            self._blocks[link_id, int(kind), level, number] = None if block is None else block.pack()

    def draining(self, link_id: str, drains: Mapping[str, Drain]) -> None:
        """Store what drains on a link."""
        self._draining[link_id] = rows.drains_text(drains)

    def lease(self, link_id: str, commitments: Iterable[LinkCommitment], row: tuple[Any, ...]) -> None:
        """Store a link's lease: (link id, generation, rate, issued, valid until, pieces as JSON, drawn)."""
        holder = rows.lease_holder(link_id)
        self._freed.append(holder)
        self._commitments += [(holder, 0, one) for one in commitments]
        self._leases.append(row)

    def publish(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        """Queue a record of a stream."""
        self._outbox.append((topic, key, payload, json.dumps(headers)))

    @property
    def request_ids(self) -> list[str]:
        """Requests that are made or changed."""
        return list(self._last)

    @property
    def touched_links(self) -> set[str]:
        """Links whose profile changes."""
        return self._links

    async def write(self, connection: Connection) -> None:
        """Send everything; the caller commits. Inside of `connection.pipeline()` nothing waits in between."""
        # First what takes the database longest: it works while the rest is put together.
        await self._write_profile(connection)
        inserted = [one for identity, one in self._last.items() if self._first[identity] is None]
        updated = [one for identity, one in self._last.items() if self._first[identity] is not None]
        for statement, found in ((_INSERT, inserted), (_UPDATE, updated)):
            if found:
                await many(connection, statement, [tuple(rows.values(one)) for one in found])
        await self._write_commitments(connection)
        await self._write_notices(connection)
        if self._answers or self._audit or self._outbox:
            arrays = (*columns(self._answers, 5), *columns(self._audit, 7), *columns(self._outbox, 4))
            await connection.execute(_TELL, arrays)

    async def _write_commitments(self, connection: Connection) -> None:
        freed = list(self._freed)
        made = list(self._commitments)
        for identity, after in self._last.items():
            before = self._first[identity]
            held = before.commitments if before is not None else ()
            same_rank = before is None or before.rank == after.rank
            if held == after.commitments and same_rank:
                continue
            if held:
                freed.append(identity)
            made += [(identity, after.rank, one) for one in after.commitments]
        if freed:
            await connection.execute("SELECT set_config('chart.profiled', 'on', true)")
            await connection.execute("DELETE FROM commitment WHERE request_id = ANY(%s::text[])", (array(freed),))
        await many(
            connection,
            "INSERT INTO commitment (request_id, link_id, rate_bps, start_us, end_us, kind, rank, profiled)"
            " SELECT *, true FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],"
            " %s::smallint[], %s::smallint[])",
            [
                (identity, one.link_id, one.committed_bps, one.start_us, one.end_us, int(one.kind), rank)
                for identity, rank, one in made
            ],
        )

    async def _write_profile(self, connection: Connection) -> None:
        await many(
            connection,
            "DELETE FROM profile p USING unnest(%s::text[], %s::smallint[], %s::smallint[], %s::bigint[])"
            " AS t(link_id, kind, level, number) WHERE (p.link_id, p.kind, p.level, p.number)"
            " = (t.link_id, t.kind, t.level, t.number)",
            [key for key, cells in self._blocks.items() if cells is None],
        )
        if self._links or self._draining:
            stored = [(*key, cells) for key, cells in self._blocks.items() if cells is not None]
            links = [
                (link_id, int(link_id in self._links), self._draining.get(link_id))
                for link_id in sorted(self._links | self._draining.keys())
            ]
            await connection.execute(_STORE, (*columns(stored, 5), *columns(links, 3)))
        await many(
            connection,
            "INSERT INTO lease SELECT link_id, generation, rate_bps, issued_at_us, valid_until_us, pieces::jsonb,"
            " drawn_bps FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[],"
            " %s::bigint[]) AS t(link_id, generation, rate_bps, issued_at_us, valid_until_us, pieces, drawn_bps)"
            " ON CONFLICT (link_id) DO UPDATE SET generation = excluded.generation, rate_bps = excluded.rate_bps,"
            " issued_at_us = excluded.issued_at_us, valid_until_us = excluded.valid_until_us,"
            " pieces = excluded.pieces, drawn_bps = excluded.drawn_bps",
            self._leases,
        )

    async def _write_notices(self, connection: Connection) -> None:
        assert notices.PENDING == 2
        await many(
            connection,
            "INSERT INTO confirmation (request_id, node, status) SELECT * FROM unnest(%s::text[], %s::text[],"
            " %s::bytea[]) ON CONFLICT (request_id, node) DO UPDATE SET status = excluded.status",
            list({one[:2]: one for one in self._confirmations}.values()),
        )
        await many(
            connection,
            "INSERT INTO callback (id, request_id, owner, event, url, body, state, created_at_us, next_attempt_us,"
            " traceparent) SELECT id, request_id, owner, event, url, body, 2, at, at, traceparent"
            " FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[],"
            " %s::text[]) WITH ORDINALITY AS t(id, request_id, owner, event, url, body, at, traceparent, number)"
            # Numbered in this order: the order in which an application is told.
            " ORDER BY number",
            self._callbacks,
        )
        await many(
            connection,
            "INSERT INTO receipt (request_id, owner, statement, stated_at_us) SELECT * FROM unnest(%s::text[],"
            " %s::text[], %s::bytea[], %s::bigint[]) ON CONFLICT (request_id) DO UPDATE SET"
            " statement = excluded.statement, stated_at_us = excluded.stated_at_us",
            [(identity, *row) for identity, row in self._receipts.items()],
        )

    def _tell(self, outcome: Outcome, actor: str) -> None:
        """Queue the records of a change; they continue the trace of the call that asked for the rate."""
        after = outcome.reservation
        headers = {"traceparent": after.traceparent} if after.traceparent else telemetry.inject({})
        if outcome.grant == "put":
            grant = messages.grant_record(after)
            headers["type"] = grant.DESCRIPTOR.full_name
            self.publish(FLOW_GRANT, after.id, grant.SerializeToString(), headers)
        elif outcome.grant:
            self.publish(FLOW_GRANT, after.id, None, headers)
        if outcome.forget:
            headers.pop("type", None)
            self.publish(RATE_REQUEST, after.id, None, headers)
        elif outcome.announce:
            headers["type"] = "chart.v1.RateRequest"
            self.publish(RATE_REQUEST, after.id, self.message(after)[1], headers)
        if outcome.action:
            self.audit(actor, outcome.action, after, headers)

    def audit(self, actor: str, action: str, after: Reservation, headers: dict[str, str]) -> None:
        """Note who did it."""
        detail = messages.audit_detail(after)
        trace = after.traceparent.split("-")[1] if after.traceparent.count("-") == 3 else ""
        record = audit_pb2.AuditRecord(
            id=str(ULID()),
            at_us=time.time_ns() // 1000,
            service=telemetry.service_name(),
            actor=actor,
            action=action,
            subject=after.id,
            detail_json=detail,
            trace_id=trace,
        )
        self._audit.append((record.id, record.at_us / 1e6, actor, action, after.id, detail, trace))
        headers["type"] = record.DESCRIPTOR.full_name
        self.publish(audit.TOPIC, after.id, record.SerializeToString(), headers)
