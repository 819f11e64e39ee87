"""SQL of alert rules and alerts. An alert's change and its record for chart.alert.v1 are one transaction (outbox)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from psycopg.types.json import Jsonb
from ulid import ULID

from chart.archiver.alerts import STATISTICS, Finding, Open, PathState, Step
from chart.archiver.times import moment, time_us
from chart.common import outbox, telemetry
from chart.common.database import Connection, Pool
from chart.v1 import alert_pb2, archive_pb2, audit_pb2

TOPIC = "chart.alert.v1"
AUDIT = "chart.audit.v1"
# One archiver at a time decides about alerts. Any number, not the one of the partitions.
_LOCK = 0x414C5254
_STATES = """
SELECT l.source, l.destination, l.metric, l.unit, l.error, l.value, l.measured_at,
    r.at AS minute_at, r.mean, r.p50, r.p95, r.p99, r.minimum, r.maximum,
    CASE WHEN r.probes_sent > 0 THEN r.probes_lost::float8 / r.probes_sent END AS loss_ratio,
    c.at AS change_at, c.before, c.after,
    CASE WHEN l.error = '' THEN l.measured_at ELSE g.at END AS good_at
FROM latest_measurement l
LEFT JOIN LATERAL (SELECT * FROM rollup_minute r WHERE r.source = l.source AND r.destination = l.destination
    AND r.metric = l.metric AND r.at >= %(since)s AND r.at < %(minute)s ORDER BY r.at DESC LIMIT 1) r ON true
LEFT JOIN LATERAL (SELECT * FROM path_change c WHERE c.source = l.source AND c.destination = l.destination
    AND c.metric = l.metric ORDER BY c.at DESC LIMIT 1) c ON true
LEFT JOIN LATERAL (SELECT max(r.at) AS at FROM rollup_minute r WHERE l.error <> '' AND r.source = l.source
    AND r.destination = l.destination AND r.metric = l.metric AND r.count > 0) g ON true
WHERE l.metric = ANY(%(metrics)s)
"""


class AlertRepository:
    """Rules and alerts."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    # Rules

    async def rules(self) -> list[archive_pb2.AlertRule]:
        """All rules by id."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute("SELECT revision, body FROM alert_rule ORDER BY id")
            return [_rule(row) for row in await cursor.fetchall()]

    async def put(
        self, rule: archive_pb2.AlertRule, expected: int, actor: str
    ) -> tuple[archive_pb2.AlertRule, bool, int | None]:
        """Store a rule; returns it, whether it is new, and the stored revision when another was expected."""
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, rule.id))
            cursor = await connection.execute("SELECT revision, body FROM alert_rule WHERE id = %s", (rule.id,))
            row = await cursor.fetchone()
            before = _rule(row) if row is not None else None
            if expected and (before is None or before.revision != expected):
                return rule, False, before.revision if before is not None else 0
            body = json_format.MessageToDict(rule, preserving_proto_field_name=True)
            if before is not None:
                rule.revision = before.revision
                if rule == before:
                    return before, False, None
            cursor = await connection.execute(
                "INSERT INTO alert_rule (id, revision, body) VALUES (%s, nextval('revision'), %s)"
                " ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, body = excluded.body,"
                " updated_at = now() RETURNING revision",
                (rule.id, Jsonb(body)),
            )
            stored = await cursor.fetchone()
            assert stored is not None
            rule.revision = int(stored["revision"])
            await note(connection, actor, "alert_rule.put", rule.id, {"after": body})
        return rule, before is None, None

    async def delete(self, identity: str, actor: str) -> bool:
        """Remove a rule; its alerts are resolved by the next look. False: there is none."""
        async with self._pool.connection() as connection, connection.transaction():
            cursor = await connection.execute("DELETE FROM alert_rule WHERE id = %s", (identity,))
            if not cursor.rowcount:
                return False
            await note(connection, actor, "alert_rule.delete", identity, {})
        return True

    # Alerts

    async def states(self, metrics: Sequence[str], now_us: int) -> list[PathState]:
        """Latest result, minute and change of every path of these metrics."""
        minute_us = now_us // 60_000_000 * 60_000_000
        parameters = {
            "metrics": list(metrics),
            "minute": moment(minute_us),
            "since": moment(minute_us - 3_600_000_000),
        }
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_STATES, parameters)
            return [_state(row) for row in await cursor.fetchall()]

    async def open_alerts(self) -> list[Open]:
        """Alerts that are not resolved."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute("SELECT * FROM alert WHERE resolved_at IS NULL")
            return [
                Open(
                    row["id"],
                    row["rule"],
                    row["subject"],
                    time_us(row["holds_since"]),
                    time_us(row["fired_at"]) if row["fired_at"] else 0,
                    row["value"],
                    row["threshold"],
                    row["summary"],
                )
                for row in await cursor.fetchall()
            ]

    async def carry_out(self, steps: Sequence[Step], now_us: int) -> int:
        """Store what changes and queue its records; returns how many records. Another archiver at it: nothing."""
        told = 0
        async with self._pool.connection() as connection, connection.transaction():
            cursor = await connection.execute("SELECT pg_try_advisory_xact_lock(%s) AS got", (_LOCK,))
            row = await cursor.fetchone()
            if row is None or not row["got"]:
                return 0
            for step in steps:
                told += await _carry_out(connection, step, now_us)
        return told

    async def listing(self, *, firing: bool, subject: str, limit: int) -> list[dict[str, Any]]:
        """Alerts that fired, the newest first."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT * FROM alert WHERE fired_at IS NOT NULL AND (NOT %(firing)s OR resolved_at IS NULL)"
                " AND (%(subject)s = '' OR subject = %(subject)s) ORDER BY fired_at DESC, id LIMIT %(limit)s",
                {"firing": firing, "subject": subject, "limit": limit},
            )
            rows = await cursor.fetchall()
        return [
            {
                **row,
                "fired_at_us": time_us(row["fired_at"]),
                "resolved_at_us": time_us(row["resolved_at"]) if row["resolved_at"] else 0,
            }
            for row in rows
        ]

    async def forget(self, before_us: int) -> None:
        """Drop alerts that were resolved before this."""
        async with self._pool.connection() as connection:
            await connection.execute("DELETE FROM alert WHERE resolved_at < %s", (moment(before_us),))


def _rule(row: dict[str, Any]) -> archive_pb2.AlertRule:
    rule: archive_pb2.AlertRule = json_format.ParseDict(
        row["body"], archive_pb2.AlertRule(), ignore_unknown_fields=True
    )
    rule.revision = int(row["revision"])
    return rule


def _state(row: dict[str, Any]) -> PathState:
    minute = None
    if row["minute_at"] is not None:
        minute = {name: row[name] for name in STATISTICS if name != "latest"}
    change = None
    if row["change_at"] is not None:
        change = (time_us(row["change_at"]), float(row["before"]), float(row["after"]))
    return PathState(
        (row["source"], row["destination"], row["metric"]),
        row["unit"],
        float(row["value"]) if not row["error"] else None,
        # Failed runs are no data.
        time_us(row["good_at"]) if row["good_at"] is not None else 0,
        time_us(row["minute_at"]) if row["minute_at"] is not None else 0,
        minute,
        change,
    )


async def _carry_out(connection: Connection, step: Step, now_us: int) -> int:
    finding, alert = step.finding, step.alert
    if step.action in ("begin", "fire") and finding is not None:
        rule, subject = finding.key
        identity = alert.id if alert is not None else str(ULID())
        fired = moment(now_us) if step.action == "fire" else None
        await connection.execute(
            "INSERT INTO alert (id, rule, subject, summary, value, threshold, holds_since, fired_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET summary = excluded.summary,"
            " value = excluded.value, threshold = excluded.threshold, fired_at = excluded.fired_at",
            (
                identity,
                rule,
                subject,
                finding.summary,
                finding.value,
                finding.rule.threshold,
                moment(step.holds_since_us),
                fired,
            ),
        )
        if step.action == "fire":
            await _tell(connection, identity, finding, now_us)
            return 1
    elif step.action == "update" and finding is not None and alert is not None:
        await connection.execute(
            "UPDATE alert SET summary = %s, value = %s WHERE id = %s", (finding.summary, finding.value, alert.id)
        )
    elif step.action == "forget" and alert is not None:
        await connection.execute("DELETE FROM alert WHERE id = %s", (alert.id,))
    elif step.action == "resolve" and alert is not None:
        await connection.execute("UPDATE alert SET resolved_at = %s WHERE id = %s", (moment(now_us), alert.id))
        record = alert_pb2.Alert(
            id=alert.id,
            subject=alert.subject,
            rule=alert.rule,
            state=alert_pb2.ALERT_STATE_RESOLVED,
            summary=alert.summary,
            value=alert.value,
            threshold=alert.threshold,
            at_us=now_us,
        )
        await outbox.add(connection, TOPIC, alert.subject, record)
        return 1
    return 0


async def _tell(connection: Connection, identity: str, finding: Finding, now_us: int) -> None:
    rule, subject = finding.key
    record = alert_pb2.Alert(
        id=identity,
        subject=subject,
        rule=rule,
        state=alert_pb2.ALERT_STATE_FIRING,
        summary=finding.summary,
        value=finding.value,
        threshold=finding.rule.threshold,
        at_us=now_us,
    )
    await outbox.add(connection, TOPIC, subject, record)


async def note(connection: Connection, actor: str, action: str, subject: str, detail: dict[str, Any]) -> None:
    """The audit record of a change; its row in this schema's audit table comes through the stream like all others."""
    record = audit_pb2.AuditRecord(
        id=str(ULID()),
        at_us=time.time_ns() // 1000,
        service=telemetry.service_name(),
        actor=actor,
        action=action,
        subject=subject,
        detail_json=json.dumps(detail),
        trace_id=telemetry.current_trace_id(),
    )
    await outbox.add(connection, AUDIT, subject, record)
