"""Idempotency keys: that of a rate request is claimed and answered in the transaction that commits the rate; whatever
else is posted claims its key first and leaves its answer afterwards.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from psycopg import AsyncCursor
from psycopg.rows import DictRow

from chart.common.database import Connection, Pool
from chart.reservations.decisions.jobs import IdempotencyKey
from chart.reservations.store.arrays import array

_CLAIM_ANSWER = (
    "INSERT INTO kept_answer AS k (owner, operation, key, fingerprint, claim, claimed_until_us, created_at_us)"
    " VALUES (%(owner)s, %(operation)s, %(key)s, %(fingerprint)s, %(claim)s, %(until)s, %(now)s)"
    " ON CONFLICT (owner, operation, key) DO UPDATE SET fingerprint = excluded.fingerprint, claim = excluded.claim,"
    " claimed_until_us = excluded.claimed_until_us, created_at_us = excluded.created_at_us, answer = NULL"
    " WHERE k.created_at_us < %(expired)s"
    " OR (k.answer IS NULL AND k.claimed_until_us < %(now)s AND k.fingerprint = excluded.fingerprint) RETURNING claim"
)
_CLAIMED = " WHERE owner = %s AND operation = %s AND key = %s AND claim = %s AND answer IS NULL RETURNING 1"
_KEEP = "UPDATE kept_answer SET answer = %s" + _CLAIMED  # noqa: S608 - a constant
_GIVE_BACK = "DELETE FROM kept_answer" + _CLAIMED  # noqa: S608


async def claim(
    connection: Connection, keys: Collection[IdempotencyKey], now_us: int, kept_us: int
) -> AsyncCursor[DictRow]:
    """Claim the keys of rate requests; the answer has (owner, key) of those that were free. Waits for a call under way
    with the same key.
    """
    return await connection.execute(
        "INSERT INTO idempotency_key AS k (owner, key, body_hash, created_at_us) SELECT owner, key, body_hash, %s"
        " FROM unnest(%s::text[], %s::text[], %s::bytea[]) AS t(owner, key, body_hash)"
        " ON CONFLICT (owner, key) DO UPDATE SET body_hash = excluded.body_hash,"
        " created_at_us = excluded.created_at_us, answer = NULL WHERE k.created_at_us < %s RETURNING owner, key",
        (
            now_us,
            array(key.owner for key in keys),
            array(key.key for key in keys),
            array(key.body_hash for key in keys),
            now_us - kept_us,
        ),
    )


async def answers(connection: Connection, places: Collection[tuple[str, str]]) -> dict[tuple[str, str], DictRow]:
    """What was claimed before and answered (body_hash, answer), by owner and key."""
    rows = await connection.execute(
        "SELECT k.owner, k.key, k.body_hash, k.answer FROM idempotency_key k JOIN unnest(%s::text[], %s::text[])"
        " AS t(owner, key) ON k.owner = t.owner AND k.key = t.key",
        (array(owner for owner, _ in places), array(key for _, key in places)),
    )
    return {(row["owner"], row["key"]): row for row in await rows.fetchall()}


async def give_back(connection: Connection, keys: Collection[IdempotencyKey]) -> None:
    """Free claimed keys that got no answer."""
    if keys:
        await connection.execute(
            "DELETE FROM idempotency_key k USING unnest(%s::text[], %s::text[]) AS t(owner, key)"
            " WHERE k.owner = t.owner AND k.key = t.key AND k.answer IS NULL",
            (array(key.owner for key in keys), array(key.key for key in keys)),
        )


@dataclass(frozen=True)
class Place:
    """What an answer is kept under."""

    owner: str
    operation: str
    key: str


class KeptAnswers:
    """Answers to whatever is posted but requests for a rate, for `kept_us`."""

    def __init__(self, pool: Pool, kept_us: int) -> None:
        self._pool = pool
        self._kept_us = kept_us

    async def claim(
        self, place: Place, fingerprint: bytes, claim: str, now_us: int, until_us: int
    ) -> tuple[bool, bytes, bytes | None]:
        """Claim a place until a moment.

        Returns whether it is claimed now; else the fingerprint of what claimed it before, and the answer to that (None:
        there is none yet).
        """
        values = {
            "owner": place.owner,
            "operation": place.operation,
            "key": place.key,
            "fingerprint": fingerprint,
            "claim": claim,
            "until": until_us,
            "now": now_us,
            "expired": now_us - self._kept_us,
        }
        async with self._pool.connection() as connection:
            if await (await connection.execute(_CLAIM_ANSWER, values)).fetchone() is not None:
                return True, fingerprint, None
            found = await connection.execute(
                "SELECT fingerprint, answer FROM kept_answer WHERE owner = %s AND operation = %s AND key = %s",
                (place.owner, place.operation, place.key),
            )
            row = await found.fetchone()
        if row is None:
            return False, fingerprint, None
        return False, bytes(row["fingerprint"]), None if row["answer"] is None else bytes(row["answer"])

    async def keep(self, place: Place, claim: str, answer: bytes | None) -> bool:
        """Leave the answer of a claimed place, or with None give the place back; False: the claim is another's."""
        claimed = (place.owner, place.operation, place.key, claim)
        async with self._pool.connection() as connection:
            if answer is None:
                found = await connection.execute(_GIVE_BACK, claimed)
            else:
                found = await connection.execute(_KEEP, (answer, *claimed))
            return await found.fetchone() is not None
