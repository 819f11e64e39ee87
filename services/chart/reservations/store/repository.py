"""Requests in PostgreSQL: what is read of them, and changes that commit nothing on any link.

Whatever commits or frees a rate goes through `edges.batches`; here are the statuses of agents, times that are reached,
lists, receipts. Every change stands with its audit row and its outgoing records in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from chart.common.database import Connection, Pool
from chart.common.rpc_errors import not_found
from chart.reservations.decisions import messages, room
from chart.reservations.decisions.profile import BITS, TOP, US
from chart.reservations.decisions.reservation import LIVE, Outcome, Reservation
from chart.reservations.store import allowances, rows
from chart.reservations.store.changes import Changes
from chart.v1 import reservations_pb2
from chart.v1.flow_grant_pb2 import FlowSelector
from chart.v1.rate_request_pb2 import RateRequestSpecification

SERVICE_ACTOR = "reservations"


@dataclass(frozen=True)
class Filter:
    """Which requests a list shows; empty: all of them."""

    owner: str = ""
    lifecycle: int = 0
    enforcement: int = 0
    service_state: int = 0
    callback_state: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    search: str = ""
    link_id: str = ""
    updated_since_us: int = 0

    def conditions(self) -> tuple[list[str], dict[str, Any]]:
        """Conditions of a query and their values."""
        values: dict[str, Any] = {}
        found = []
        for name in ("owner", "lifecycle", "enforcement", "service_state", "callback_state"):
            if getattr(self, name):
                found.append(f"{name} = %({name})s")
                values[name] = getattr(self, name)
        exact = {key: value for key, value in self.tags.items() if value}
        if exact:
            found.append("tags @> %(tags)s")
            values["tags"] = Jsonb(exact)
        present = [key for key, value in self.tags.items() if not value]
        if present:
            found.append("tags ?& %(present)s")
            values["present"] = present
        for number, word in enumerate(self.search.lower().split()):
            found.append(f"position(%(word{number})s in words) > 0")
            values[f"word{number}"] = word
        if self.link_id:
            found.append("%(link_id)s = ANY(link_ids)")
            values["link_id"] = self.link_id
        if self.updated_since_us:
            found.append("updated_at_us >= %(since)s")
            values["since"] = self.updated_since_us
        return found, values


class Repository:
    """Reads and changes of requests."""

    def __init__(self, pool: Pool, idempotency_us: int) -> None:
        self._pool = pool
        self._idempotency_us = idempotency_us

    @property
    def pool(self) -> Pool:
        """Connections."""
        return self._pool

    @property
    def idempotency_us(self) -> int:
        """How long a key stands for its answer."""
        return self._idempotency_us

    async def get(self, request_id: str, owner: str = "") -> Reservation:
        """One request; `owner` empty: anybody's.

        Raises:
            RefusalError: NOT_FOUND, also when it is somebody else's.
        """
        async with self._pool.connection() as connection:
            found = await connection.execute(
                rows.SELECT + " WHERE id = %s AND (%s = '' OR owner = %s)", (request_id, owner, owner)
            )
            row = await found.fetchone()
        if row is None:
            raise not_found("rate request", request_id)
        return rows.reservation_of(row)

    async def page(self, wanted: Filter, size: int, cursor: str) -> tuple[list[Reservation], str]:
        """Requests, newest first, and the cursor of the next page ("" at the end)."""
        conditions, values = wanted.conditions()
        if cursor:
            conditions.append("id < %(cursor)s")
        where = " WHERE " + " AND ".join(conditions) if conditions else ""
        async with self._pool.connection() as connection:
            found = await connection.execute(
                rows.SELECT + where + " ORDER BY id DESC LIMIT %(size)s + 1", {**values, "cursor": cursor, "size": size}
            )
            page = [rows.reservation_of(row) for row in await found.fetchall()]
        more = len(page) > size
        page = page[:size]
        return page, page[-1].id if more else ""

    async def change_many(
        self, request_ids: Iterable[str], decide: Callable[[Reservation], Outcome | None], now_us: int
    ) -> list[tuple[Reservation, Outcome]]:
        """Change several requests in one transaction; those that are not there are left out. Before and outcome of
        each. What they commit must not change.
        """
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.execute(
                rows.SELECT + " WHERE id = ANY(%s) ORDER BY id FOR UPDATE OF r", (list(request_ids),)
            )
            return await _change(connection, await found.fetchall(), decide, now_us)

    async def take_due(
        self, now_us: int, limit: int, decide: Callable[[Reservation], Outcome | None]
    ) -> tuple[int, list[str]]:
        """Change up to `limit` requests whose moment has come and that no other replica works on.

        Returns how many were looked at, and those whose outcome gives back a rate before its time or brings one into
        force: they are left as they are, `edges.batches` has to do it.
        """
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.execute(
                rows.SELECT + " WHERE due_at_us <= %s ORDER BY due_at_us LIMIT %s FOR UPDATE OF r SKIP LOCKED",
                (now_us, limit),
            )
            due = await found.fetchall()
            early: list[str] = []

            def decide_here(reservation: Reservation) -> Outcome | None:
                outcome = decide(reservation)
                gives_back = outcome is not None and outcome.reservation.commitments != reservation.commitments
                starts = outcome is not None and outcome.reservation.active and not reservation.active
                held = (*reservation.commitments, *room.holds(reservation))
                moves = outcome is not None and room.holds(outcome.reservation) != room.holds(reservation)
                if (gives_back or starts or moves) and any(one.end_us > now_us for one in held):
                    early.append(reservation.id)
                    return None
                return outcome

            await _change(connection, due, decide_here, now_us)
        return len(due), early

    async def lacking(self, limit: int, after: tuple[int, int, str] | None) -> list[tuple[int, int, str]]:
        """Requests that are to get more, the highest rank and earliest first: rank, when made, id."""
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT rank, created_at_us, id FROM rate_request WHERE lacking AND (%s::int IS NULL"
                " OR (-rank, created_at_us, id) > (-%s::int, %s::bigint, %s::text))"
                " ORDER BY rank DESC, created_at_us, id LIMIT %s",
                (*((None, 0, 0, "") if after is None else (after[0], *after)), limit),
            )
            return [(row["rank"], row["created_at_us"], row["id"]) for row in await found.fetchall()]

    async def waiting(self, limit: int, after: str) -> list[str]:
        """Requests whose rate waits for what drains, by id, beginning after one."""
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT id FROM rate_request WHERE waits_until_us > 0 AND id > %s ORDER BY id LIMIT %s", (after, limit)
            )
            return [row["id"] for row in await found.fetchall()]

    async def receipt(self, request_id: str, owner: str, now_us: int) -> tuple[reservations_pb2.Receipt, bool]:
        """The stored statement of a request that ended, or one of this moment; whether it is complete.

        Raises:
            RefusalError: NOT_FOUND.
        """
        reservation = await self.get(request_id, owner)
        async with self._pool.connection() as connection:
            found = await connection.execute("SELECT statement FROM receipt WHERE request_id = %s", (request_id,))
            row = await found.fetchone()
        if row is None or reservation.live:
            return messages.receipt(reservation, now_us), False
        return reservations_pb2.Receipt.FromString(bytes(row["statement"])), True

    async def committed_links(self) -> list[str]:
        """Links on which anything is committed, sorted."""
        async with self._pool.connection() as connection:
            found = await connection.execute("SELECT DISTINCT link_id FROM commitment")
            return sorted(row["link_id"] for row in await found.fetchall())

    async def between(
        self, nodes: list[str], limit: int, after: str
    ) -> list[tuple[str, RateRequestSpecification, FlowSelector]]:
        """Live requests from or to one of the nodes by id, beginning after one: id, what was asked, which packets."""
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT id, specification, selector FROM rate_request"
                " WHERE lifecycle = ANY(%(live)s) AND id > %(after)s"
                " AND (source_node = ANY(%(nodes)s) OR destination_node = ANY(%(nodes)s)) ORDER BY id LIMIT %(limit)s",
                {"live": list(LIVE), "after": after, "nodes": nodes, "limit": limit},
            )
            return [
                (
                    row["id"],
                    RateRequestSpecification.FromString(bytes(row["specification"])),
                    FlowSelector.FromString(bytes(row["selector"])),
                )
                for row in await found.fetchall()
            ]

    async def live(self, limit: int, after: str) -> list[Reservation]:
        """Live requests by id, beginning after one."""
        async with self._pool.connection() as connection:
            found = await connection.execute(
                rows.SELECT + " WHERE lifecycle = ANY(%s) AND id > %s ORDER BY id LIMIT %s", (list(LIVE), after, limit)
            )
            return [rows.reservation_of(row) for row in await found.fetchall()]

    async def keep_house(self, now_us: int, *, past: bool) -> None:
        """Drop idempotency keys that are too old to count and idle allowances; with `past` the blocks of profiles that
        are over.
        """
        async with self._pool.connection() as connection:
            await allowances.forget(connection)
            for table in ("idempotency_key", "kept_answer"):
                await connection.execute(
                    f"DELETE FROM {table} WHERE created_at_us < %s",  # noqa: S608 - one of two names
                    (now_us - self._idempotency_us,),
                )
            for level in range(TOP if past else 0):
                # A quarter of an hour late: clocks differ, and nobody asks for the past.
                last = (now_us // US - 900) >> (BITS * (level + 1))
                await connection.execute("DELETE FROM profile WHERE level = %s AND number < %s", (level, last))

    async def recount_nodes(self) -> None:
        """Have what nodes hold counted anew from the requests when it is looked at next: a version before counts
        nothing.
        """
        async with self._pool.connection() as connection:
            await connection.execute(
                "WITH known AS (SELECT id FROM link WHERE id LIKE %s AND NOT stale ORDER BY id FOR UPDATE)"
                " UPDATE link l SET stale = true FROM known WHERE l.id = known.id",
                (room.track_of("%"),),
            )

    async def counts(self) -> dict[tuple[int, int], int]:
        """How many live requests there are by lifecycle and enforcement."""
        async with self._pool.connection() as connection:
            found = await connection.execute(
                "SELECT lifecycle, enforcement, count(*) AS number FROM rate_request WHERE lifecycle = ANY(%s)"
                " GROUP BY 1, 2",
                (list(LIVE),),
            )
            return {(row["lifecycle"], row["enforcement"]): row["number"] for row in await found.fetchall()}


async def _change(
    connection: Connection, found: list[Any], decide: Callable[[Reservation], Outcome | None], now_us: int
) -> list[tuple[Reservation, Outcome]]:
    changes = Changes()
    done = []
    for row in found:
        reservation = rows.reservation_of(row)
        outcome = decide(reservation)
        if outcome is not None:
            done.append((reservation, outcome))
            changes.save(reservation, outcome, SERVICE_ACTOR, now_us)
    async with connection.pipeline():
        await changes.write(connection)
    return done
