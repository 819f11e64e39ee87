"""Quotas of applications, and what these have of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from chart.common import audit
from chart.common.database import Connection, Pool
from chart.common.rpc_errors import conflict, not_found
from chart.reservations.decisions import quotas
from chart.reservations.decisions.quotas import DEFAULT_OWNER, Quota, Spending, Use
from chart.reservations.decisions.validation import CheckedRequest
from chart.reservations.store.arrays import array


async def quotas_of(connection: Connection, owners: Collection[str] | None) -> dict[str, Quota]:
    """Quotas of owners and the default one; of everybody with None."""
    rows = await connection.execute(
        "SELECT owner, revision, max_requests, max_total_bps, max_priority_plus_one, horizon_us,"
        " coalesce(max_held_bps, 0) AS max_held_bps FROM quota LEFT JOIN held_quota USING (owner)"
        " WHERE %s::text IS NULL OR owner = ANY(%s::text[])",
        (None if owners is None else "", array([*(owners or ()), DEFAULT_OWNER])),
    )
    return {row["owner"]: Quota(**row) for row in await rows.fetchall()}


async def uses_of(connection: Connection, owners: Collection[str]) -> dict[str, Use]:
    """What owners have now."""
    rows = await connection.execute(
        "SELECT owner, count(*) AS requests, coalesce(sum(granted_bps), 0)::bigint AS total,"
        " coalesce(sum(granted_bps) FILTER (WHERE lifecycle = 1), 0)::bigint AS held FROM rate_request"
        " WHERE owner = ANY(%s::text[]) AND lifecycle IN (1, 2, 3) GROUP BY owner",
        (array(owners),),
    )
    return {row["owner"]: Use(row["requests"], row["total"], row["held"]) for row in await rows.fetchall()}


async def lock(connection: Connection, owners: Collection[str]) -> None:
    """Keep other transactions from spending of these owners' quotas until this one is over."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtext('quota'), hashtext(owner)) FROM unnest(%s::text[]) AS owner",
        (array(sorted(owners)),),
    )


class Quotas:
    """Quotas outside of admission."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def every(self) -> tuple[dict[str, Quota], Mapping[str, Use]]:
        """Every quota, and what their owners have."""
        async with self._pool.connection() as connection:
            found = await quotas_of(connection, None)
            return found, await uses_of(connection, found)

    async def put(self, quota: Quota, expected_revision: int, actor: str) -> tuple[Quota, bool]:
        """Store a quota; returns it and whether it is new.

        Raises:
            RefusalError: it was changed meanwhile.
        """
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.execute("SELECT revision FROM quota WHERE owner = %s FOR UPDATE", (quota.owner,))
            row = await found.fetchone()
            revision = row["revision"] if row else 0
            if expected_revision and expected_revision != revision:
                raise conflict(f"the quota has revision {revision}, not {expected_revision}")
            stored = dataclasses.replace(quota, revision=revision + 1)
            await connection.execute(
                "INSERT INTO quota (owner, revision, max_requests, max_total_bps, max_priority_plus_one, horizon_us)"
                " VALUES (%(owner)s, %(revision)s, %(max_requests)s, %(max_total_bps)s,"
                " %(max_priority_plus_one)s, %(horizon_us)s) ON CONFLICT (owner) DO UPDATE SET"
                " revision = excluded.revision, max_requests = excluded.max_requests,"
                " max_total_bps = excluded.max_total_bps, max_priority_plus_one = excluded.max_priority_plus_one,"
                " horizon_us = excluded.horizon_us",
                dataclasses.asdict(stored),
            )
            await connection.execute(
                "INSERT INTO held_quota (owner, max_held_bps) VALUES (%s, %s)"
                " ON CONFLICT (owner) DO UPDATE SET max_held_bps = excluded.max_held_bps",
                (quota.owner, quota.max_held_bps),
            )
            bounds = {
                name: value for name, value in dataclasses.asdict(quota).items() if name not in ("owner", "revision")
            }
            await audit.add(connection, actor, "quota.put", quota.owner, bounds)
        return stored, row is None

    async def delete(self, owner: str, actor: str) -> None:
        """Remove a quota.

        Raises:
            RefusalError: there is none.
        """
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.execute("DELETE FROM quota WHERE owner = %s RETURNING 1", (owner,))
            if await found.fetchone() is None:
                raise not_found("quota", owner)
            await audit.add(connection, actor, "quota.delete", owner, {})

    async def check(self, spending: Spending, now_us: int) -> None:
        """Look whether something could be spent now.

        Raises:
            RefusalError: it is more than the quota allows.
        """
        owner = spending.owner
        async with self._pool.connection() as connection:
            quota = quotas.of(owner, await quotas_of(connection, [owner]), operator=spending.operator)
            if quota is None:
                return
            use = (await uses_of(connection, [owner])).get(owner, Use())
        quotas.check(quota, use, spending, now_us)

    async def check_new(
        self, owner: str, checked: CheckedRequest, now_us: int, *, operator: bool = False
    ) -> CheckedRequest:
        """Look whether a new request could be made now; returns it as its owner's quota lets it last.

        Raises:
            RefusalError: it is more than the quota allows.
        """
        async with self._pool.connection() as connection:
            quota = quotas.of(owner, await quotas_of(connection, [owner]), operator=operator)
        lasting = quotas.with_end(checked, quota, now_us)
        await self.check(quotas.spending_of_new(owner, lasting, operator=operator), now_us)
        return lasting
