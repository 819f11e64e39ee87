"""Delivers notices to applications: at least once, in order for each request, signed, retried with back-off, given up
after a day. What was given up stays visible and can be sent again.

A notice is taken by pushing its next attempt into the future, so a replica that dies in the middle only delays it. The
receiver gets 5 s, its answer is not read beyond its status, redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter

from chart.common import audit
from chart.common.clock import Clock
from chart.common.database import Connection, Pool
from chart.common.rpc_errors import invalid, not_found
from chart.reservations import notices, rows
from chart.reservations.reservation import Outcome, Reservation
from chart.reservations.writing import Changes
from chart.v1 import reservations_pb2
from chart.v1.rate_request_pb2 import CallbackState

TIMEOUT_S = 5.0
AT_ONCE = 16
POLL_S = 0.5
# A notice that is being delivered is left to its replica for this long.
TAKEN_US = 30_000_000
FORMER_SECRET_US = 24 * 3600 * 1_000_000
MOST_ERROR = 300

DELIVERED = Counter("chart_reservations_callbacks_total", "Attempts to deliver a notice", ["outcome"])

_log = structlog.get_logger("chart.reservations")

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
    """Notices in the database, and their deliveries. `anywhere` allows receivers on this machine and plain HTTP."""

    def __init__(self, pool: Pool, clock: Clock, *, anywhere: bool) -> None:
        self._pool = pool
        self._clock = clock
        self._anywhere = anywhere

    async def run(self) -> None:
        """Deliver until cancelled."""
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        async with httpx.AsyncClient(
            timeout=TIMEOUT_S, follow_redirects=False, limits=limits, trust_env=False
        ) as client:
            running: set[asyncio.Task[None]] = set()
            try:
                while True:
                    running |= await self._begin(client, AT_ONCE - len(running))
                    if running:
                        # One receiver that does not answer holds up nobody else.
                        _, running = await asyncio.wait(running, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
                    else:
                        await self._clock.sleep(POLL_S)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _begin(self, client: httpx.AsyncClient, most: int) -> set[asyncio.Task[None]]:
        """Begin the deliveries whose time has come."""
        try:
            taken = await self._take(self._clock.now_us(), most) if most else []
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            _log.warning("callbacks wait for the database", reason=str(error))
            taken = []
        return {asyncio.create_task(self._attempt(client, one)) for one in taken}

    async def _attempt(self, client: httpx.AsyncClient, notice: Notice) -> None:
        try:
            await self._deliver(client, notice)
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            # It stays taken for a while and is delivered again.
            _log.warning("the outcome of a callback is not stored", request=notice.request_id, reason=str(error))

    async def _take(self, now_us: int, most: int = AT_ONCE) -> list[Notice]:
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

    async def _deliver(self, client: httpx.AsyncClient, notice: Notice) -> None:
        """One attempt."""
        error = await self._forbidden(notice.url)
        if not error:
            keys = await self._secrets(notice.owner)
            headers = notices.headers(keys, notice.id, self._clock.now_us() // 1_000_000, notice.body)
            if notice.traceparent:
                headers["traceparent"] = notice.traceparent
            try:
                async with client.stream("POST", notice.url, content=notice.body, headers=headers) as answer:
                    if not answer.is_success:
                        error = f"the receiver answered {answer.status_code}"
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as failure:
                error = f"{type(failure).__name__}: {failure}"
        await self._note(notice, error[:MOST_ERROR])

    async def _forbidden(self, url: str) -> str:
        """Why a receiver is not called: in production only public addresses, and only with TLS. Empty: it is."""
        if self._anywhere:
            return ""
        parts = urlsplit(url)
        if parts.scheme != "https":
            return "callbacks go to https addresses only"
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                parts.hostname or "", parts.port or 443, type=socket.SOCK_STREAM
            )
        except OSError as error:
            return f"{parts.hostname} has no address: {error}"
        hidden = [one[4][0] for one in found if not ipaddress.ip_address(one[4][0]).is_global]
        return f"{parts.hostname} is {hidden[0]}, which is no public address" if hidden else ""

    async def _note(self, notice: Notice, error: str) -> None:
        """Store the outcome of an attempt, and what it means for the request."""
        now_us = self._clock.now_us()
        attempts = notice.attempts + 1
        again_us = notices.next_attempt_us(attempts, notice.created_at_us, now_us) if error else 0
        state = notices.DELIVERED if not error else notices.PENDING if again_us else notices.DEAD
        DELIVERED.labels(outcome="delivered" if not error else "retry" if again_us else "dead").inc()
        if state == notices.DEAD:
            _log.warning("gave up to tell an application", request=notice.request_id, url=notice.url, reason=error)
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

    async def _secrets(self, owner: str) -> list[bytes]:
        """Secrets that an application's notices are signed with now."""
        await self.secret(owner, rotate=False)
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT secret, former, former_until_us FROM callback_secret WHERE owner = %s", (owner,)
            )
            row = await found.fetchone()
        assert row is not None
        keys = [bytes(row["secret"])]
        if row["former"] is not None and row["former_until_us"] > self._clock.now_us():
            keys.append(bytes(row["former"]))
        return keys

    async def secret(self, owner: str, *, rotate: bool, actor: str = "") -> reservations_pb2.GetCallbackSecretResponse:
        """The secret of an application, made when it is first needed; with `rotate` a new one."""
        now_us = self._clock.now_us()
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
                    "secret": secrets.token_bytes(notices.SECRET_BYTES),
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

    async def retry(self, identity: str, owner: str, actor: str) -> reservations_pb2.Callback:
        """Send a notice again that was given up or delivered.

        Raises:
            RefusalError: there is none.
        """
        now_us = self._clock.now_us()
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
