"""One-time tokens of enrolment: of each only its hash, whom it is for, and its state."""

from __future__ import annotations

import hashlib
from typing import Any

from chart.common.database import Connection

_COLUMNS = "e.id, e.identity, e.created_by, e.created_at_us, e.expires_at_us, e.used_at_us, e.withdrawn_at_us"


def token_hash(token: str) -> bytes:
    """What the table keeps of a one-time token."""
    return hashlib.sha256(token.encode()).digest()


async def add(
    connection: Connection, enrolment: str, token: str, identity: str, actor: str, now_us: int, expires_at_us: int,
    repetition: bytes | None,
) -> None:  # fmt: skip
    """Remember a one-time token. ``repetition``: by which the same call is known when it comes again."""
    await connection.execute(
        "INSERT INTO enrolment (id, token_hash, identity, created_by, created_at_us, expires_at_us, repetition)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s)",
        (enrolment, token_hash(token), identity, actor, now_us, expires_at_us, repetition),
    )


async def of_repetition(connection: Connection, repetition: bytes) -> dict[str, Any] | None:
    """The enrolment that a call made before; further repetitions wait for the end of the transaction."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"authority.enrolment.{repetition.hex()}",))
    cursor = await connection.execute(
        f"SELECT {_COLUMNS} FROM enrolment e WHERE e.repetition = %s",  # noqa: S608 - constant
        (repetition,),
    )
    return await cursor.fetchone()


async def replace_token(connection: Connection, enrolment: str, token: str) -> bool:
    """Another token in place of the one before; False: that one was used, or the enrolment withdrawn."""
    cursor = await connection.execute(
        "UPDATE enrolment SET token_hash = %s WHERE id = %s AND used_at_us IS NULL AND withdrawn_at_us IS NULL"
        " RETURNING id",
        (token_hash(token), enrolment),
    )
    return await cursor.fetchone() is not None


async def of_token(connection: Connection, token: str) -> dict[str, Any] | None:
    """The enrolment that a token is of; whoever else comes with it waits for the end of the transaction."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS}, e.serial, e.key_digest FROM enrolment e WHERE e.token_hash = %s"  # noqa: S608 - constant
        " FOR UPDATE",
        (token_hash(token),),
    )
    return await cursor.fetchone()


async def open_since(connection: Connection, identity: str, since_us: int, now_us: int) -> str | None:
    """The newest open enrolment of an identity that was made after a moment; held until the end of the transaction."""
    cursor = await connection.execute(
        "SELECT id FROM enrolment WHERE identity = %s AND created_at_us > %s AND expires_at_us > %s"
        " AND used_at_us IS NULL AND withdrawn_at_us IS NULL ORDER BY created_at_us DESC LIMIT 1 FOR UPDATE",
        (identity, since_us, now_us),
    )
    row = await cursor.fetchone()
    return None if row is None else str(row["id"])


async def use(connection: Connection, enrolment: str, now_us: int, serial: str, key_digest: bytes) -> None:
    """The token was used, for this certificate of a key; when it was used first stays."""
    await connection.execute(
        "UPDATE enrolment SET used_at_us = coalesce(used_at_us, %s), serial = %s, key_digest = %s WHERE id = %s",
        (now_us, serial, key_digest, enrolment),
    )


async def get(connection: Connection, enrolment: str) -> dict[str, Any] | None:
    """One enrolment, held until the end of the transaction."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS} FROM enrolment e WHERE e.id = %s FOR UPDATE",  # noqa: S608 - constant
        (enrolment,),
    )
    return await cursor.fetchone()


async def withdraw(connection: Connection, enrolment: str, now_us: int) -> None:
    """Its token enrols nobody any more."""
    await connection.execute(
        "UPDATE enrolment SET withdrawn_at_us = %s WHERE id = %s AND withdrawn_at_us IS NULL", (now_us, enrolment)
    )


async def newest(connection: Connection, limit: int) -> list[dict[str, Any]]:
    """Enrolments with the certificate that each led to, the newest first."""
    cursor = await connection.execute(
        f"SELECT {_COLUMNS}, c.serial, c.not_after_us, c.revoked_at_us FROM enrolment e"  # noqa: S608 - constant
        " LEFT JOIN certificate c ON c.serial = e.serial ORDER BY e.created_at_us DESC, e.id DESC LIMIT %s",
        (limit,),
    )
    return await cursor.fetchall()
