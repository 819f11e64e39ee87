"""What receipts are made of: grants of rate requests, and the counters of the agents that confirmed them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from chart.common.database import Connection
from chart.v1 import grant_status_pb2, rate_request_pb2


@dataclass(frozen=True)
class NodeCount:
    """What one agent counted."""

    node: str
    sent_bytes: int
    delivered_bytes: int
    updated_at_us: int


@dataclass(frozen=True)
class Account:
    """One flow."""

    request_id: str
    owner: str
    granted: dict[str, Any]
    nodes: list[NodeCount] = field(default_factory=list)


def granted(request: rate_request_pb2.RateRequest) -> dict[str, Any]:
    """What a request was granted, as receipts say it."""
    return {
        "guaranteed_bps": request.granted_bps,
        "links": list(request.link_ids),
        "source": request.specification.source,
        "destination": request.specification.destination,
        "priority": request.specification.preemption_priority,
        "start_us": request.specification.start_us or request.created_at_us,
        "end_us": request.specification.end_us,
        "lifecycle": rate_request_pb2.Lifecycle.Name(request.lifecycle).removeprefix("LIFECYCLE_"),
        "enforced_at_us": request.enforced_at_us,
    }


async def note_request(connection: Connection, request: rate_request_pb2.RateRequest) -> None:
    """Take a request's state; an older one changes nothing."""
    await connection.execute(
        "INSERT INTO account (request_id, owner, body, updated_at_us) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (request_id) DO UPDATE SET body = EXCLUDED.body, updated_at_us = EXCLUDED.updated_at_us"
        " WHERE account.updated_at_us <= EXCLUDED.updated_at_us",
        (request.id, request.owner, Jsonb(granted(request)), request.updated_at_us),
    )


async def note_status(connection: Connection, status: grant_status_pb2.GrantStatus, at_us: int) -> None:
    """Take an agent's counters; within a generation they only grow, so the greatest seen counts."""
    await connection.execute(
        "INSERT INTO account_node (request_id, node, generation, sent_bytes, delivered_bytes, updated_at_us)"
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (request_id, node) DO UPDATE SET"
        " generation = EXCLUDED.generation, updated_at_us = EXCLUDED.updated_at_us,"
        " sent_bytes = greatest(account_node.sent_bytes, EXCLUDED.sent_bytes),"
        " delivered_bytes = greatest(account_node.delivered_bytes, EXCLUDED.delivered_bytes)",
        (status.request_id, status.node, status.generation, status.sent_bytes, status.delivered_bytes, at_us),
    )


async def get(connection: Connection, request_id: str) -> Account | None:
    """One flow's account; None when it is unknown."""
    row = await (
        await connection.execute("SELECT owner, body FROM account WHERE request_id = %s", (request_id,))
    ).fetchone()
    if row is None:
        return None
    cursor = await connection.execute(
        "SELECT node, sent_bytes, delivered_bytes, updated_at_us FROM account_node WHERE request_id = %s ORDER BY node",
        (request_id,),
    )
    return Account(request_id, row["owner"], row["body"], [NodeCount(**one) for one in await cursor.fetchall()])
