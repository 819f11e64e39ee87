"""What must not come back with a backup: numbers used since, open tokens, revoked certificates, released rates.

`jump` needs the restored database alone: generations of keys and grants and the authority's revision go on far above
what may have been used since the backup, and enrolment tokens that were open then are void. `catch_up` repeats what the
audit stream, which outlives the database, says was revoked or released since. Both run before any service starts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from chart.common import audit
from chart.common.streams import Broker
from chart.v1 import audit_pb2

# More than what happens between a backup and a disaster. Signals carry eight bits of an epoch: half of these apart.
JUMP = 1 << 20
EPOCH_JUMP = JUMP + 128
# Clocks differ, and a change of the dump's moment may be in the dump or not: repeating one changes nothing.
MARGIN_US = 60_000_000
READ_LIMIT_S = 300.0
CONFIRM_LIMIT_US = 10_000_000
REMEMBERED_US = 24 * 3600 * 1_000_000
REASON = "released after the backup that was restored"


@dataclass
class Since:
    """What the audit says happened since a backup that must not be undone."""

    # Identity or serial number, with the moment and the reason.
    identities: dict[str, tuple[int, str]] = field(default_factory=dict)
    serials: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    # Certificates that were issued since: identity and end by serial number.
    issued: dict[str, tuple[str, int]] = field(default_factory=dict)
    authorisations: set[str] = field(default_factory=set)
    released: dict[str, int] = field(default_factory=dict)


def since(records: Iterable[audit_pb2.AuditRecord], from_us: int) -> Since:
    """What records of the audit stream say from a moment on. Pure."""
    found = Since()
    for record in records:
        if record.at_us < from_us:
            continue
        detail = json.loads(record.detail_json or "{}")
        if record.action == "certificate.revoke" and detail.get("serial"):
            found.serials[detail["serial"]] = (record.at_us, detail.get("reason", ""), record.subject)
        elif record.action == "certificate.revoke":
            found.identities[record.subject] = (record.at_us, detail.get("reason", ""))
        elif record.action == "certificate.issue":
            found.issued[detail["serial"]] = (record.subject, int(detail["not_after_us"]))
        elif record.action == "authorisation.delete":
            found.authorisations.add(record.subject)
        elif record.action == "rate-request.release":
            found.released[record.subject] = record.at_us
    return found


async def read_audit(broker: Broker) -> list[audit_pb2.AuditRecord]:
    """All that the audit stream has now.

    Raises:
        TimeoutError: not within five minutes.
    """
    found: list[audit_pb2.AuditRecord] = []
    async with asyncio.timeout(READ_LIMIT_S), broker.subscribe([audit.TOPIC], start="earliest") as records:
        over = asyncio.ensure_future(records.caught_up.wait())
        try:
            while not over.done():
                following = asyncio.ensure_future(anext(records))
                await asyncio.wait((following, over), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    break
                if isinstance(following.result().value, audit_pb2.AuditRecord):
                    found.append(following.result().value)  # type: ignore[arg-type]  # the stream's message
            found += [one.value for one in records.ready() if isinstance(one.value, audit_pb2.AuditRecord)]
        finally:
            over.cancel()
    return found


def jump(connection: psycopg.Connection[Any], now_us: int) -> None:
    """No number of the time after the backup is used again, and no token of the time before it is."""
    if _has(connection, "authority.key_epoch"):
        connection.execute(
            # Ended already: it only says where the numbers go on.
            "INSERT INTO authority.key_epoch (sender, receiver, generation, wrapped, created_at_us, sign_from_us,"
            " renew_at_us, expires_at_us) SELECT sender, receiver, max(generation) + %(jump)s, '', %(now)s, %(now)s,"
            " %(now)s, %(now)s FROM authority.key_epoch GROUP BY 1, 2",
            {"jump": EPOCH_JUMP, "now": now_us},
        )
        connection.execute("UPDATE authority.key_epoch SET renew_at_us = least(renew_at_us, %s)", (now_us,))
        # Whoever follows the changes gets the whole list.
        connection.execute("UPDATE authority.revision SET value = value + %(jump)s, forgotten = value + %(jump)s"
                           , {"jump": JUMP})  # fmt: skip
    if _has(connection, "authority.enrolment", "withdrawn_at_us"):
        connection.execute(
            "UPDATE authority.enrolment SET withdrawn_at_us = %s WHERE used_at_us IS NULL AND withdrawn_at_us IS NULL",
            (now_us,),
        )
    if _has(connection, "reservations.rate_request"):
        # 3: ACTIVE, 1: PENDING. The next record of a grant is a new content, whatever nodes confirmed since.
        connection.execute(
            "UPDATE reservations.rate_request SET generation = generation + %(jump)s,"
            " content_generation = generation + %(jump)s + 1, enforcement = 1, confirm_by_us = %(confirm)s,"
            " grant_issued_at_us = 0, due_at_us = least(due_at_us, %(now)s), revision = revision + %(jump)s"
            " WHERE lifecycle = 3 AND generation > 0",
            {"jump": JUMP, "now": now_us, "confirm": now_us + CONFIRM_LIMIT_US},
        )
        connection.execute("UPDATE reservations.lease SET generation = generation + %s", (JUMP,))


def catch_up(connection: psycopg.Connection[Any], found: Since, now_us: int) -> dict[str, int]:
    """Repeat what was revoked and released; how much of it the backup did not have. Repeating it changes nothing."""
    return {
        "revoked": _revoke(connection, found, now_us),
        "authorisations": _remove_authorisations(connection, found, now_us),
        "released": _release(connection, found, now_us),
    }


def _revoke(connection: psycopg.Connection[Any], found: Since, now_us: int) -> int:
    done = 0
    # Certificates of the time after the backup are in nobody's table: only so they can be refused.
    for serial, (identity, not_after_us) in found.issued.items():
        if serial not in found.serials and identity not in found.identities:
            continue
        connection.execute("INSERT INTO authority.identity (name, active) VALUES (%s, false) ON CONFLICT DO NOTHING",
                           (identity,))  # fmt: skip
        connection.execute(
            "INSERT INTO authority.certificate (serial, identity, issued_at_us, not_after_us) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (serial, identity, now_us, not_after_us),
        )
    for serial, (at_us, reason, _) in found.serials.items():
        done += connection.execute(
            "UPDATE authority.certificate SET revoked_at_us = %s, revoked_because = %s WHERE serial = %s"
            " AND revoked_at_us = 0",
            (at_us, reason, serial),
        ).rowcount
    for identity, (at_us, reason) in found.identities.items():
        done += connection.execute(
            "UPDATE authority.identity SET active = false, revoked_at_us = %(at)s,"
            " revision = (SELECT value FROM authority.revision) WHERE name = %(name)s AND active",
            {"at": at_us, "name": identity},
        ).rowcount
        connection.execute(
            "UPDATE authority.certificate SET revoked_at_us = %s, revoked_because = %s WHERE identity = %s"
            " AND revoked_at_us = 0",
            (at_us, reason, identity),
        )
        node = identity.removeprefix("node/")
        connection.execute(
            "UPDATE authority.key_epoch SET expires_at_us = least(expires_at_us, %(now)s)"
            " WHERE sender = %(node)s OR receiver = %(node)s",
            {"now": now_us, "node": node if node != identity else ""},
        )
    return done


def _remove_authorisations(connection: psycopg.Connection[Any], found: Since, now_us: int) -> int:
    return connection.execute(
        "UPDATE authority.authorisation SET removed_at_us = %s, revision = (SELECT value FROM authority.revision)"
        " WHERE id = ANY(%s) AND removed_at_us IS NULL",
        (now_us, sorted(found.authorisations)),
    ).rowcount


def _release(connection: psycopg.Connection[Any], found: Since, now_us: int) -> int:
    """End the requests; their commitments go, so that the links' profiles are made anew when they are next locked."""
    done = 0
    # Of the triggers of commitments.
    connection.execute("SET LOCAL search_path TO reservations, public")
    waits = _has(connection, "reservations.rate_request", "waits_until_us")
    more = sql.SQL(", waits_until_us = 0, in_force_bps = 0" if waits else "")
    statement = sql.SQL(
        # 1, 2, 3: HELD, RESERVED, ACTIVE; 4, 6: RELEASED, CANCELLED; enforcement 4: ENDED.
        "UPDATE reservations.rate_request SET lifecycle = CASE lifecycle WHEN 3 THEN 4 ELSE 6 END, enforcement = 4,"
        " reason = %(reason)s, ended_at_us = %(at)s, updated_at_us = %(now)s, revision = revision + %(jump)s,"
        " confirm_by_us = 0, due_at_us = %(due)s, lacking = false{} WHERE id = %(id)s AND lifecycle IN (1, 2, 3)"
    ).format(more)
    for request_id, at_us in found.released.items():
        values = {"reason": REASON, "at": at_us, "now": now_us, "jump": JUMP, "due": now_us + REMEMBERED_US}
        if not connection.execute(statement, {**values, "id": request_id}).rowcount:
            continue
        done += 1
        connection.execute("DELETE FROM reservations.commitment WHERE request_id = %s", (request_id,))
        connection.execute(
            "INSERT INTO reservations.outbox (topic, key, payload) VALUES ('chart.flow-grant.v1', %s, NULL)",
            (request_id,),
        )
    return done


def _has(connection: psycopg.Connection[Any], table: str, column: str = "") -> bool:
    """Whether a backup, which may be of an earlier version, has a table with a column."""
    row = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
    if row is None or row[0] is None or not column:
        return row is not None and row[0] is not None
    found = connection.execute(
        "SELECT 1 FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s AND NOT attisdropped",
        (table, column),
    )
    return found.fetchone() is not None
