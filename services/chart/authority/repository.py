"""The authority's tables but for keys, accounts, enrolments and next hops. `changes` follows what has a revision.

A followed change takes the next one: `next_revision` locks one row until the commit, so revisions become visible in
their order and a poller misses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from chart.common.database import Connection

CHANNEL = "authority_changes"


async def next_revision(connection: Connection) -> int:
    """A revision for this transaction's change; wakes those who follow when it commits."""
    cursor = await connection.execute("UPDATE revision SET value = value + 1 RETURNING value")
    row = await cursor.fetchone()
    assert row is not None
    await notify(connection)
    return int(row["value"])


async def notify(connection: Connection) -> None:
    """Wake every replica when this transaction commits."""
    await connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))


async def revision(connection: Connection) -> tuple[int, int]:
    """The newest revision, and the one up to which removals are forgotten."""
    row = await (await connection.execute("SELECT value, forgotten FROM revision")).fetchone()
    assert row is not None
    return int(row["value"]), int(row["forgotten"])


# Identities, certificates.


async def enrol(connection: Connection, identity: str, *, element: bool, revision: int) -> int | None:
    """Make an identity known or active again; a node gets the lowest free element id, which it keeps."""
    await connection.execute(
        "INSERT INTO identity (name, revision) VALUES (%(name)s, %(revision)s)"
        " ON CONFLICT (name) DO UPDATE SET active = true, revision = EXCLUDED.revision",
        {"name": identity, "revision": revision},
    )
    if element:
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('authority.element'))")
        await connection.execute(
            "UPDATE identity SET element_id = (SELECT min(free) FROM generate_series(1, 65535) free"
            " WHERE NOT EXISTS (SELECT 1 FROM identity other WHERE other.element_id = free))"
            " WHERE name = %s AND element_id IS NULL",
            (identity,),
        )
    return await element_id(connection, identity)


async def element_id(connection: Connection, identity: str) -> int | None:
    """The sender id of an element."""
    row = await (
        await connection.execute("SELECT element_id FROM identity WHERE name = %s AND active", (identity,))
    ).fetchone()
    return None if row is None else row["element_id"]


async def element_of_id(connection: Connection, number: int) -> str | None:
    """The node that a sender id belongs to."""
    row = await (
        await connection.execute("SELECT name FROM identity WHERE element_id = %s AND active", (number,))
    ).fetchone()
    return None if row is None else str(row["name"]).removeprefix("node/")


async def active_elements(connection: Connection) -> dict[str, int]:
    """Names and sender ids of enrolled nodes."""
    cursor = await connection.execute("SELECT name, element_id FROM identity WHERE active AND element_id IS NOT NULL")
    return {row["name"].removeprefix("node/"): row["element_id"] for row in await cursor.fetchall()}


async def is_active(connection: Connection, identity: str) -> bool:
    """Whether an identity is enrolled and not revoked."""
    cursor = await connection.execute("SELECT 1 FROM identity WHERE name = %s AND active", (identity,))
    return await cursor.fetchone() is not None


async def revoked_at_us(connection: Connection, identity: str) -> int | None:
    """When an identity was revoked that was not enrolled again since; None: it is not revoked."""
    cursor = await connection.execute(
        "SELECT revoked_at_us FROM identity WHERE name = %s AND NOT active FOR UPDATE", (identity,)
    )
    row = await cursor.fetchone()
    return None if row is None else int(row["revoked_at_us"])


async def is_revoked(connection: Connection, identity: str, serial: str) -> bool:
    """Whether an identity or this certificate of it is revoked; a revocation waits for the end of the transaction."""
    cursor = await connection.execute("SELECT active FROM identity WHERE name = %s FOR SHARE", (identity,))
    known = await cursor.fetchone()
    cursor = await connection.execute(
        "SELECT revoked_at_us FROM certificate WHERE serial = %s AND revoked_at_us > 0 FOR SHARE", (serial,)
    )
    return (known is not None and not known["active"]) or await cursor.fetchone() is not None


async def add_certificate(
    connection: Connection, serial: str, identity: str, issued_at_us: int, not_after_us: int
) -> None:
    """Note a certificate that was issued."""
    await connection.execute(
        "INSERT INTO certificate (serial, identity, issued_at_us, not_after_us) VALUES (%s, %s, %s, %s)",
        (serial, identity, issued_at_us, not_after_us),
    )


async def revoke_identity(connection: Connection, identity: str, now_us: int, reason: str, revision: int) -> bool:
    """Revoke every certificate of an identity; whether there was one."""
    cursor = await connection.execute(
        "UPDATE identity SET active = false, revoked_at_us = %s, revision = %s WHERE name = %s RETURNING name",
        (now_us, revision, identity),
    )
    if await cursor.fetchone() is None:
        return False
    await connection.execute(
        "UPDATE certificate SET revoked_at_us = %s, revoked_because = %s WHERE identity = %s AND revoked_at_us = 0",
        (now_us, reason, identity),
    )
    return True


async def revoke_serial(connection: Connection, serial: str, now_us: int, reason: str) -> str | None:
    """Revoke one certificate; whose it is, None when it is unknown."""
    cursor = await connection.execute(
        "UPDATE certificate SET revoked_at_us = %s, revoked_because = %s WHERE serial = %s RETURNING identity",
        (now_us, reason, serial),
    )
    row = await cursor.fetchone()
    return None if row is None else str(row["identity"])


@dataclass(frozen=True)
class Revocations:
    """What must not be believed: serial numbers, and identities that were revoked and not enrolled again."""

    serials: frozenset[str]
    identities: frozenset[str]


async def revocations(connection: Connection, now_us: int) -> Revocations:
    """Everything revoked that could still be presented."""
    rows = await (
        await connection.execute(
            "SELECT serial FROM certificate WHERE revoked_at_us > 0 AND not_after_us > %s", (now_us,)
        )
    ).fetchall()
    names = await (await connection.execute("SELECT name FROM identity WHERE NOT active")).fetchall()
    return Revocations(frozenset(row["serial"] for row in rows), frozenset(row["name"] for row in names))


async def identities(connection: Connection) -> list[dict[str, Any]]:
    """Everybody who was ever given a certificate, with the newest one."""
    cursor = await connection.execute(
        "SELECT i.name AS identity, i.element_id, i.active, i.revoked_at_us, c.serial, c.issued_at_us, c.not_after_us,"
        " c.revoked_at_us AS certificate_revoked_at_us, c.revoked_because FROM identity i LEFT JOIN LATERAL"
        " (SELECT * FROM certificate WHERE identity = i.name ORDER BY issued_at_us DESC, serial LIMIT 1) c ON true"
        " ORDER BY i.name"
    )
    return await cursor.fetchall()


async def revoked_certificates(connection: Connection, limit: int) -> list[dict[str, Any]]:
    """Certificates that were revoked, the newest revocation first."""
    cursor = await connection.execute(
        "SELECT c.identity, c.serial, c.revoked_at_us, c.revoked_because AS reason, c.not_after_us, i.active"
        " FROM certificate c JOIN identity i ON i.name = c.identity WHERE c.revoked_at_us > 0"
        " ORDER BY c.revoked_at_us DESC, c.serial LIMIT %s",
        (limit,),
    )
    return await cursor.fetchall()


async def elements(connection: Connection, since: int) -> list[dict[str, Any]]:
    """Element ids that changed after a revision; inactive ones have no id any more."""
    cursor = await connection.execute(
        "SELECT name, element_id, active FROM identity WHERE element_id IS NOT NULL AND revision > %s ORDER BY name",
        (since,),
    )
    return [
        {"element": row["name"].removeprefix("node/"), "id": row["element_id"] if row["active"] else None}
        for row in await cursor.fetchall()
    ]


# Authorisations and their policies.


async def policies(connection: Connection) -> list[dict[str, Any]]:
    """Every policy of authorisations."""
    cursor = await connection.execute("SELECT id, revision, body FROM authorisation_policy ORDER BY id")
    return await cursor.fetchall()


async def put_policy(connection: Connection, identity: str, body: dict[str, Any], revision: int) -> None:
    """Set a policy."""
    await connection.execute(
        "INSERT INTO authorisation_policy (id, revision, body) VALUES (%s, %s, %s)"
        " ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, body = EXCLUDED.body",
        (identity, revision, Jsonb(body)),
    )


async def remove_policy(connection: Connection, identity: str) -> bool:
    """Forget a policy; whether there was one."""
    cursor = await connection.execute("DELETE FROM authorisation_policy WHERE id = %s RETURNING id", (identity,))
    return await cursor.fetchone() is not None


async def add_authorisation(
    connection: Connection, identity: str, owner: str, address: str, body: dict[str, Any], expires_at_us: int,
    revision: int,
) -> None:  # fmt: skip
    """Store an authorisation."""
    await connection.execute(
        "INSERT INTO authorisation (id, revision, owner, client_address, body, expires_at_us)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        (identity, revision, owner, address, Jsonb(body), expires_at_us),
    )


async def remove_authorisation(
    connection: Connection, identity: str, owner: str | None, now_us: int, revision: int
) -> bool:
    """Revoke an authorisation; ``owner`` None: of any owner. Returns whether there was one."""
    cursor = await connection.execute(
        "UPDATE authorisation SET removed_at_us = %(now)s, revision = %(revision)s WHERE id = %(id)s"
        " AND removed_at_us IS NULL AND (%(owner)s::text IS NULL OR owner = %(owner)s) RETURNING id",
        {"id": identity, "owner": owner, "now": now_us, "revision": revision},
    )
    return await cursor.fetchone() is not None


async def authorisations(connection: Connection, since: int, owner: str | None = None) -> list[dict[str, Any]]:
    """Authorisations that changed after a revision, removed ones too; ``owner`` restricts."""
    cursor = await connection.execute(
        "SELECT id, owner, host(client_address) AS client_address, body, expires_at_us, removed_at_us"
        " FROM authorisation WHERE revision > %(since)s AND (%(owner)s::text IS NULL OR owner = %(owner)s)"
        " ORDER BY revision",
        {"since": since, "owner": owner},
    )
    return await cursor.fetchall()


# Peers.


async def put_peer(
    connection: Connection, domain: str, url: str, ca_pem: str, pairs: list[list[str]], revision: int
) -> None:
    """State a neighbouring domain."""
    await connection.execute(
        "INSERT INTO peer (domain, revision, url, ca_pem, pairs) VALUES (%s, %s, %s, %s, %s) ON CONFLICT (domain)"
        " DO UPDATE SET revision = EXCLUDED.revision, url = EXCLUDED.url, ca_pem = EXCLUDED.ca_pem,"
        " pairs = EXCLUDED.pairs",
        (domain, revision, url, ca_pem, Jsonb(pairs)),
    )


async def remove_peer(connection: Connection, domain: str) -> bool:
    """Forget a neighbouring domain; whether it was known."""
    cursor = await connection.execute("DELETE FROM peer WHERE domain = %s RETURNING domain", (domain,))
    return await cursor.fetchone() is not None


async def peers(connection: Connection) -> list[dict[str, Any]]:
    """Every neighbouring domain."""
    cursor = await connection.execute("SELECT domain, revision, url, ca_pem, pairs FROM peer ORDER BY domain")
    return await cursor.fetchall()


# What time brings about.


async def expire(connection: Connection, now_us: int) -> int:
    """Remove authorisations and learnt next hops whose time is over; returns how many."""
    due = await (
        await connection.execute(
            "SELECT 1 FROM authorisation WHERE removed_at_us IS NULL AND expires_at_us <= %(now)s"
            " UNION ALL SELECT 1 FROM next_hop WHERE removed_at_us IS NULL AND expires_at_us <= %(now)s LIMIT 1",
            {"now": now_us},
        )
    ).fetchone()
    if due is None:
        return 0
    number = await next_revision(connection)
    removed = 0
    for table in ("authorisation", "next_hop"):
        cursor = await connection.execute(
            f"UPDATE {table} SET removed_at_us = %(now)s, revision = %(revision)s"  # noqa: S608 - one of two names
            " WHERE removed_at_us IS NULL AND expires_at_us <= %(now)s",
            {"now": now_us, "revision": number},
        )
        removed += cursor.rowcount
    return removed


async def forget(connection: Connection, before_us: int, enrolments_before_us: int) -> None:
    """Delete what was removed before a moment; pollers that stayed away since then get the full list. Enrolments are
    kept longer: an operator looks them up, and who comes with an old token gets its state.
    """
    for table in ("authorisation", "next_hop"):
        cursor = await connection.execute(
            f"DELETE FROM {table} WHERE removed_at_us < %s RETURNING revision",  # noqa: S608 - one of two names
            (before_us,),
        )
        gone = [row["revision"] for row in await cursor.fetchall()]
        if gone:
            await connection.execute("UPDATE revision SET forgotten = greatest(forgotten, %s)", (max(gone),))
    await connection.execute("DELETE FROM enrolment WHERE expires_at_us < %s", (enrolments_before_us,))
    await connection.execute("DELETE FROM report WHERE at_us < %s", (before_us,))
    await connection.execute("DELETE FROM key_epoch WHERE expires_at_us < %s AND generation < (SELECT max(generation)"
                             " FROM key_epoch newer WHERE newer.sender = key_epoch.sender"
                             " AND newer.receiver = key_epoch.receiver)", (before_us,))  # fmt: skip
