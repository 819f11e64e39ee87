"""Who changed what: one row in the transaction of the change, and a record of chart.audit.v1 through the outbox."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from ulid import ULID

from chart.common import outbox, telemetry
from chart.v1 import audit_pb2

TOPIC = "chart.audit.v1"


async def add(
    connection: psycopg.AsyncConnection[Any], actor: str, action: str, subject: str, detail: Mapping[str, Any]
) -> None:
    """Note a change in the caller's transaction.

    ``actor`` is the token's subject or the service itself, ``action`` such as "node.put", ``subject`` what it was done
    to, ``detail`` the change as JSON can hold it.
    """
    record = audit_pb2.AuditRecord(
        id=str(ULID()),
        at_us=time.time_ns() // 1000,
        service=telemetry.service_name(),
        actor=actor,
        action=action,
        subject=subject,
        detail_json=json.dumps(detail, default=str),
        trace_id=telemetry.current_trace_id(),
    )
    await connection.execute(
        "INSERT INTO audit (id, at, actor, action, subject, detail, trace_id)"
        " VALUES (%s, to_timestamp(%s), %s, %s, %s, %s, %s)",
        (
            record.id,
            record.at_us / 1e6,
            actor,
            action,
            subject,
            Jsonb(json.loads(record.detail_json)),
            record.trace_id,
        ),
    )
    await outbox.add(connection, TOPIC, subject, record)
