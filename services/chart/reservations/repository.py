"""Requests in PostgreSQL: every change with its commitments, audit row and outgoing records in one transaction.

Admission locks one row per link of the candidate paths, in id order, reads their commitments and decides; so any
number of replicas admit at once and no link is ever over-committed. All SQL of the service stands here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chart.common import audit, outbox
from chart.common.database import Connection, Pool
from chart.common.rpc_errors import RefusalError, not_found
from chart.reservations import service
from chart.reservations.admission import FOREVER_US, Commitment
from chart.reservations.service import Outcome, Reservation
from chart.v1 import flow_grant_pb2, grant_status_pb2, rate_request_pb2, reservations_pb2

FLOW_GRANT = "chart.flow-grant.v1"
RATE_REQUEST = "chart.rate-request.v1"
SERVICE_ACTOR = "reservations"

_COLUMNS = [column.name for column in dataclasses.fields(Reservation) if column.name != "confirmations"]
# Built from names of columns only.
_PLACES = ", ".join(f"%({name})s" for name in _COLUMNS)
_INSERT = f"INSERT INTO rate_request ({', '.join(_COLUMNS)}) VALUES ({_PLACES})"  # noqa: S608
_UPDATE = (
    "UPDATE rate_request SET "  # noqa: S608
    + ", ".join(f"{name} = %({name})s" for name in _COLUMNS if name != "id")
    + " WHERE id = %(id)s"
)
_SELECT = (
    f"SELECT {', '.join(_COLUMNS)},"  # noqa: S608
    " ARRAY(SELECT status FROM confirmation c WHERE c.request_id = r.id) AS statuses FROM rate_request r"
)


@dataclass(frozen=True)
class IdempotencyKey:
    """What the caller gave to make a repetition harmless; `key` is not empty."""

    owner: str
    key: str
    body_hash: bytes


class Repository:
    """Reads and changes of requests."""

    def __init__(self, pool: Pool, idempotency_us: int) -> None:
        self._pool = pool
        self._idempotency_us = idempotency_us

    async def create(
        self,
        link_ids: Sequence[str],
        decide: Callable[[dict[str, list[Commitment]]], Outcome],
        key: IdempotencyKey | None,
        now_us: int,
    ) -> tuple[rate_request_pb2.RateRequest, bool]:
        """Admit and store a request; returns it and whether it is the answer of an earlier call with the same key.

        `decide` gets the commitments of the links from now on while nobody else can change them, and may refuse by
        raising. `link_ids` empty: nothing to commit, nothing locked.

        Raises:
            RefusalError: refused, or the key was used for another body.
        """
        async with self._pool.connection() as connection, connection.transaction():
            if key is not None:
                earlier = await self._claim(connection, key, now_us)
                if earlier is not None:
                    return earlier, True
            await _lock_links(connection, link_ids)
            outcome = decide(await _commitments(connection, link_ids, now_us))
            answer = service.rate_request(outcome.reservation)
            async with connection.pipeline():
                await _insert(connection, outcome)
                if key is not None:
                    await connection.execute(
                        "UPDATE idempotency_key SET answer = %s WHERE owner = %s AND key = %s",
                        (answer.SerializeToString(), key.owner, key.key),
                    )
        return answer, False

    async def commitments(self, link_ids: Sequence[str], now_us: int) -> dict[str, list[Commitment]]:
        """What is committed on links from now on, without locking them."""
        async with self._pool.connection() as connection:
            return await _commitments(connection, link_ids, now_us)

    async def get(self, request_id: str, owner: str = "") -> Reservation:
        """One request; `owner` empty: anybody's.

        Raises:
            RefusalError: NOT_FOUND, also when it is somebody else's.
        """
        async with self._pool.connection() as connection:
            return await _one(connection, request_id, owner)

    async def page(self, owner: str, lifecycle: int, size: int, cursor: str) -> tuple[list[Reservation], str]:
        """Requests, newest first, and the cursor of the next page ("" at the end)."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                _SELECT + " WHERE (%(owner)s = '' OR owner = %(owner)s)"
                " AND (%(lifecycle)s = 0 OR lifecycle = %(lifecycle)s)"
                " AND (%(cursor)s = '' OR id < %(cursor)s) ORDER BY id DESC LIMIT %(size)s + 1",
                {"owner": owner, "lifecycle": lifecycle, "cursor": cursor, "size": size},
            )
            found = [_reservation(row) for row in await rows.fetchall()]
        more = len(found) > size
        found = found[:size]
        return found, found[-1].id if more else ""

    async def change(
        self, request_id: str, owner: str, actor: str, decide: Callable[[Reservation], Outcome | None]
    ) -> Reservation:
        """Change one request while nobody else can; `decide` returns None to leave it as it is.

        Raises:
            RefusalError: NOT_FOUND.
        """
        async with self._pool.connection() as connection, connection.transaction():
            reservation = await _one(connection, request_id, owner, lock=True)
            outcome = decide(reservation)
            if outcome is None:
                return reservation
            await _save(connection, reservation, outcome, actor)
            return outcome.reservation

    async def change_many(
        self, request_ids: Iterable[str], decide: Callable[[Reservation], Outcome | None]
    ) -> list[tuple[Reservation, Outcome]]:
        """Change several requests in one transaction; those that are not there are left out. Before and outcome of
        each.
        """
        changes = []
        async with self._pool.connection() as connection, connection.transaction():
            rows = await connection.execute(
                _SELECT + " WHERE id = ANY(%s) ORDER BY id FOR UPDATE OF r", (list(request_ids),)
            )
            found = [_reservation(row) for row in await rows.fetchall()]
            async with connection.pipeline():
                for reservation in found:
                    outcome = decide(reservation)
                    if outcome is not None:
                        changes.append((reservation, outcome))
                        await _save(connection, reservation, outcome, SERVICE_ACTOR)
        return changes

    async def take_due(self, now_us: int, limit: int, decide: Callable[[Reservation], Outcome | None]) -> int:
        """Change up to `limit` requests whose moment has come and that no other replica works on; returns how
        many.
        """
        async with self._pool.connection() as connection, connection.transaction():
            rows = await connection.execute(
                _SELECT + " WHERE due_at_us <= %s ORDER BY due_at_us LIMIT %s FOR UPDATE OF r SKIP LOCKED",
                (now_us, limit),
            )
            found = [_reservation(row) for row in await rows.fetchall()]
            async with connection.pipeline():
                for reservation in found:
                    outcome = decide(reservation)
                    if outcome is not None:
                        await _save(connection, reservation, outcome, SERVICE_ACTOR)
        return len(found)

    async def forget_keys(self, now_us: int) -> None:
        """Drop idempotency keys that are too old to count."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "DELETE FROM idempotency_key WHERE created_at_us < %s", (now_us - self._idempotency_us,)
            )

    async def counts(self) -> dict[tuple[int, int], int]:
        """How many live requests there are by lifecycle and enforcement."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "SELECT lifecycle, enforcement, count(*) AS number FROM rate_request WHERE lifecycle = ANY(%s)"
                " GROUP BY 1, 2",
                (list(service.LIVE),),
            )
            return {(row["lifecycle"], row["enforcement"]): row["number"] for row in await rows.fetchall()}

    async def _claim(
        self, connection: Connection, key: IdempotencyKey, now_us: int
    ) -> rate_request_pb2.RateRequest | None:
        """Take an idempotency key; the earlier answer when it is taken. Waits for a call under way with the same
        key.
        """
        rows = await connection.execute(
            "INSERT INTO idempotency_key AS k (owner, key, body_hash, created_at_us) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (owner, key) DO UPDATE SET body_hash = excluded.body_hash,"
            " created_at_us = excluded.created_at_us, answer = NULL WHERE k.created_at_us < %s RETURNING 1",
            (key.owner, key.key, key.body_hash, now_us, now_us - self._idempotency_us),
        )
        if await rows.fetchone() is not None:
            return None
        rows = await connection.execute(
            "SELECT body_hash, answer FROM idempotency_key WHERE owner = %s AND key = %s", (key.owner, key.key)
        )
        row = await rows.fetchone()
        assert row is not None
        if bytes(row["body_hash"]) != key.body_hash:
            refusal = reservations_pb2.Refusal(
                code="idempotency-key-reused",
                detail="this Idempotency-Key was used in the last 24 h for another request",
                field="idempotency_key",
                suggestions=["use a new key for a new request"],
            )
            raise RefusalError(refusal)
        return rate_request_pb2.RateRequest.FromString(bytes(row["answer"]))


async def _lock_links(connection: Connection, link_ids: Sequence[str]) -> None:
    """Lock links against other admissions, always in id order."""
    if not link_ids:
        return
    wanted = sorted(link_ids)
    select = "SELECT id FROM link WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
    rows = await connection.execute(select, (wanted,))
    if len(await rows.fetchall()) == len(wanted):
        return
    await connection.execute(
        "INSERT INTO link (id) SELECT unnest(%s::text[]) ORDER BY 1 ON CONFLICT DO NOTHING", (wanted,)
    )
    await connection.execute(select, (wanted,))


async def _commitments(connection: Connection, link_ids: Sequence[str], now_us: int) -> dict[str, list[Commitment]]:
    found: dict[str, list[Commitment]] = {link_id: [] for link_id in link_ids}
    if not found:
        return found
    # What began before now counts from now on, so that all open-ended commitments of a link become one row.
    rows = await connection.execute(
        "SELECT link_id, sum(rate_bps)::bigint AS rate_bps, greatest(start_us, %s) AS start_us, end_us FROM commitment"
        " WHERE link_id = ANY(%s) AND end_us > %s GROUP BY 1, 3, 4",
        (now_us, list(link_ids), now_us),
    )
    for row in await rows.fetchall():
        found[row["link_id"]].append(Commitment(row["rate_bps"], row["start_us"], row["end_us"]))
    return found


async def _one(connection: Connection, request_id: str, owner: str, *, lock: bool = False) -> Reservation:
    rows = await connection.execute(
        _SELECT + " WHERE id = %s AND (%s = '' OR owner = %s)" + (" FOR UPDATE OF r" if lock else ""),
        (request_id, owner, owner),
    )
    row = await rows.fetchone()
    if row is None:
        raise not_found("rate request", request_id)
    return _reservation(row)


async def _insert(connection: Connection, outcome: Outcome) -> None:
    reservation = outcome.reservation
    await connection.execute(_INSERT, _values(reservation))
    if reservation.granted_bps:
        await connection.execute(
            "INSERT INTO commitment (request_id, link_id, rate_bps, start_us, end_us)"
            " SELECT %s, unnest(%s::text[]), %s, %s, %s",
            (
                reservation.id,
                list(reservation.link_ids),
                reservation.granted_bps,
                reservation.start_us,
                reservation.end_us,
            ),
        )
    await _tell(connection, outcome, reservation.owner or SERVICE_ACTOR)


async def _save(connection: Connection, before: Reservation, outcome: Outcome, actor: str) -> None:
    after = outcome.reservation
    await connection.execute(_UPDATE, _values(after))
    for node, status in after.confirmations.items():
        if before.confirmations.get(node) is not status:
            await connection.execute(
                "INSERT INTO confirmation (request_id, node, status) VALUES (%s, %s, %s)"
                " ON CONFLICT (request_id, node) DO UPDATE SET status = excluded.status",
                (after.id, node, status.SerializeToString()),
            )
    if outcome.frees_capacity:
        await connection.execute("DELETE FROM commitment WHERE request_id = %s", (after.id,))
    await _tell(connection, outcome, actor)


async def _tell(connection: Connection, outcome: Outcome, actor: str) -> None:
    """Queue the records of a change; they continue the trace of the call that asked for the rate."""
    reservation = outcome.reservation
    headers = {"traceparent": reservation.traceparent} if reservation.traceparent else {}
    if outcome.grant:
        record = service.grant_record(reservation) if outcome.grant == "put" else None
        await outbox.add(connection, FLOW_GRANT, reservation.id, record, headers)
    if outcome.forget:
        await outbox.add(connection, RATE_REQUEST, reservation.id, None, headers)
    elif outcome.announce:
        await outbox.add(connection, RATE_REQUEST, reservation.id, service.rate_request(reservation), headers)
    if outcome.action:
        detail: dict[str, Any] = {
            "revision": reservation.revision,
            "granted_bps": reservation.granted_bps,
            "links": list(reservation.link_ids),
            "start_us": reservation.start_us,
            "end_us": None if reservation.end_us == FOREVER_US else reservation.end_us,
        }
        await audit.add(connection, actor, outcome.action, reservation.id, detail)


def _values(reservation: Reservation) -> dict[str, Any]:
    values = {name: getattr(reservation, name) for name in _COLUMNS}
    values["specification"] = reservation.specification.SerializeToString()
    values["selector"] = reservation.selector.SerializeToString()
    values["link_ids"] = list(reservation.link_ids)
    values["confirming_nodes"] = list(reservation.confirming_nodes)
    return values


def _reservation(row: dict[str, Any]) -> Reservation:
    statuses = [grant_status_pb2.GrantStatus.FromString(bytes(status)) for status in row["statuses"]]
    values = {name: row[name] for name in _COLUMNS}
    values["specification"] = rate_request_pb2.RateRequestSpecification.FromString(bytes(row["specification"]))
    values["selector"] = flow_grant_pb2.FlowSelector.FromString(bytes(row["selector"]))
    values["link_ids"] = tuple(row["link_ids"])
    values["confirming_nodes"] = tuple(row["confirming_nodes"])
    return Reservation(**values, confirmations={status.node: status for status in statuses})
