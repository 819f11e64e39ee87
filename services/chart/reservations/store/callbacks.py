"""Notices to applications: those that wait, their outcomes, and the secrets that they are signed with.

A notice is taken by pushing its next attempt into the future, so a replica that dies in the middle only delays it.
"""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_bytes
from typing import Any

from chart.common import audit
from chart.common.database import Connection, Pool
from chart.common.rpc_errors import invalid, not_found
from chart.reservations.decisions import notices
from chart.reservations.decisions.reservation import Outcome, Reservation
from chart.reservations.store import rows
from chart.reservations.store.changes import Changes
from chart.v1 import reservations_pb2
from chart.v1.rate_request_pb2 import CallbackState

AT_ONCE = 16
# A notice that is being delivered is left to its replica for this long.
TAKEN_US = 30_000_000
FORMER_SECRET_US = 24 * 3600 * 1_000_000

_COLUMNS = (
    "id, request_id, event, url, state, attempts, created_at_us, next_attempt_us, delivered_at_us, last_error, body"
)
_RETRY = (
    "UPDATE callback SET state = 2, attempts = 0, created_at_us = %s, next_attempt_us = %s, last_error = ''"  # noqa: S608
    f" WHERE id = %s RETURNING {_COLUMNS}"
)
_LOCK = rows.SELECT + " WHERE id = %s FOR UPDATE OF r"


@dataclass(frozen=True)
class Notice:
    """One delivery."""

    id: str
    request_id: str
    owner: str
    url: str
    body: str
    attempts: int
    created_at_us: int
    traceparent: str


class Callbacks:
    """Notices in the database."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def take(self, now_us: int, most: int = AT_ONCE) -> list[Notice]:
        """Notices whose time has come: of each request only the oldest that waits."""
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.execute(
                "UPDATE callback SET next_attempt_us = %s WHERE id IN (SELECT c.id FROM callback c WHERE c.state = 2"
                " AND c.next_attempt_us <= %s AND NOT EXISTS (SELECT 1 FROM callback e WHERE e.request_id ="
                " c.request_id AND e.state = 2 AND e.sequence < c.sequence) ORDER BY c.next_attempt_us LIMIT %s"
                " FOR UPDATE SKIP LOCKED) RETURNING id, request_id, owner, url, body, attempts, created_at_us,"
                " traceparent",
                (now_us + TAKEN_US, now_us, most),
            )
            return [Notice(**row) for row in await found.fetchall()]

    async def note(self, notice: Notice, error: str, now_us: int) -> int:
        """Store the outcome of an attempt, and what it means for the request; returns the notice's new state."""
        attempts = notice.attempts + 1
        again_us = notices.next_attempt_us(attempts, notice.created_at_us, now_us) if error else 0
        state = notices.DELIVERED if not error else notices.PENDING if again_us else notices.DEAD
        async with self._pool.connection() as connection, connection.transaction():
            # Whoever adds a notice has its request locked: none is added until this is committed.
            request = await (await connection.execute(_LOCK, (notice.request_id,))).fetchone()
            await connection.execute(
                "UPDATE callback SET state = %s, attempts = %s, next_attempt_us = %s, last_error = %s,"
                " delivered_at_us = %s WHERE id = %s AND state = 2",
                (state, attempts, again_us, error, 0 if error else now_us, notice.id),
            )
            if state != notices.PENDING or attempts == 1:
                await self._bound(connection, notice.request_id)
            if state != notices.PENDING and request is not None:
                await self._settle(connection, rows.reservation_of(request), now_us)
        return state

    async def _bound(self, connection: Connection, request_id: str) -> None:
        """Give up the oldest notices of a request that has too many waiting: the newest says what is."""
        await connection.execute(
            "UPDATE callback SET state = 4, next_attempt_us = 0, last_error = 'overtaken by newer notices'"
            " WHERE id IN (SELECT id FROM callback WHERE request_id = %s AND state = 2 ORDER BY sequence DESC"
            " OFFSET %s)",
            (request_id, notices.MOST_WAITING),
        )

    async def _settle(self, connection: Connection, request: Reservation, now_us: int) -> None:
        """The callback state of a locked request: that of its newest notice, once nothing waits any more."""
        found = await connection.execute(
            "SELECT state FROM callback WHERE request_id = %s ORDER BY state = 2 DESC, sequence DESC LIMIT 1",
            (request.id,),
        )
        row = await found.fetchone()
        if row is not None and row["state"] != notices.PENDING:
            await _save(
                connection, request, notices.settled(request, row["state"] == notices.DELIVERED, now_us), now_us
            )

    async def secrets(self, owner: str, now_us: int) -> list[bytes]:
        """Secrets that an application's notices are signed with now."""
        await self.secret(owner, now_us, rotate=False)
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT secret, former, former_until_us FROM callback_secret WHERE owner = %s", (owner,)
            )
            row = await found.fetchone()
        assert row is not None
        keys = [bytes(row["secret"])]
        if row["former"] is not None and row["former_until_us"] > now_us:
            keys.append(bytes(row["former"]))
        return keys

    async def secret(
        self, owner: str, now_us: int, *, rotate: bool, actor: str = ""
    ) -> reservations_pb2.GetCallbackSecretResponse:
        """The secret of an application, made when it is first needed; with `rotate` a new one."""
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.execute(
                "INSERT INTO callback_secret AS s (owner, secret, created_at_us)"
                " VALUES (%(owner)s, %(secret)s, %(now)s)"
                " ON CONFLICT (owner) DO UPDATE SET former = CASE WHEN %(rotate)s THEN s.secret ELSE s.former END,"
                " former_until_us = CASE WHEN %(rotate)s THEN %(until)s ELSE s.former_until_us END,"
                " secret = CASE WHEN %(rotate)s THEN excluded.secret ELSE s.secret END,"
                " created_at_us = CASE WHEN %(rotate)s THEN excluded.created_at_us ELSE s.created_at_us END"
                " RETURNING secret, created_at_us",
                {
                    "owner": owner,
                    "secret": token_bytes(notices.SECRET_BYTES),
                    "now": now_us,
                    "until": now_us + FORMER_SECRET_US,
                    "rotate": rotate,
                },
            )
            row = await found.fetchone()
            if rotate:
                await audit.add(connection, actor or owner, "callback-secret.rotate", owner, {})
        assert row is not None
        return reservations_pb2.GetCallbackSecretResponse(
            secret=notices.secret_text(bytes(row["secret"])), created_at_us=row["created_at_us"]
        )

    async def page(
        self, request_id: str, owner: str, state: int, size: int, cursor: str
    ) -> tuple[list[reservations_pb2.Callback], str]:
        """Notices, newest first, and the cursor of the next page.

        Raises:
            RefusalError: `cursor` is none of an earlier page.
        """
        if cursor and not (cursor.isascii() and cursor.isdecimal() and int(cursor) < 1 << 63):
            raise invalid("cursor", "not a cursor of an earlier page")
        async with self._pool.connection() as connection:
            found = await connection.execute(
                f"SELECT {_COLUMNS}, sequence FROM callback WHERE (%(request)s = '' OR request_id = %(request)s)"  # noqa: S608
                " AND (%(owner)s = '' OR owner = %(owner)s) AND (%(state)s = 0 OR state = %(state)s)"
                " AND (%(before)s::bigint IS NULL OR sequence < %(before)s) ORDER BY sequence DESC LIMIT %(size)s + 1",
                {
                    "request": request_id,
                    "owner": owner,
                    "state": state,
                    "before": int(cursor) if cursor else None,
                    "size": size,
                },
            )
            page = await found.fetchall()
        more = len(page) > size
        numbers = [row.pop("sequence") for row in page[:size]]
        return [_message(row) for row in page[:size]], str(numbers[-1]) if more else ""

    async def retry(self, identity: str, owner: str, actor: str, now_us: int) -> reservations_pb2.Callback:
        """Send a notice again that was given up or delivered.

        Raises:
            RefusalError: there is none.
        """
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.execute(
                "SELECT request_id FROM callback WHERE id = %s AND (%s = '' OR owner = %s)", (identity, owner, owner)
            )
            row = await found.fetchone()
            if row is None:
                raise not_found("callback", identity)
            request = await (await connection.execute(_LOCK, (row["request_id"],))).fetchone()
            row = await (await connection.execute(_RETRY, (now_us, now_us, identity))).fetchone()
            assert row is not None
            if request is not None:
                reservation = rows.reservation_of(request)
                await _save(connection, reservation, notices.queued_again(reservation, now_us), now_us)
            await audit.add(connection, actor, "callback.retry", row["request_id"], {"callback": identity})
        return _message(row)


async def _save(connection: Connection, before: Reservation, outcome: Outcome | None, now_us: int) -> None:
    if outcome is not None:
        changes = Changes()
        changes.save(before, outcome, "reservations", now_us)
        await changes.write(connection)


def _message(row: dict[str, Any]) -> reservations_pb2.Callback:
    values = {**row, "state": CallbackState.ValueType(row["state"])}
    return reservations_pb2.Callback(**values)
