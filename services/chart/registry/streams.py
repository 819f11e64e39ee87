"""Streams of the registry: which record a change becomes, and bringing a stream back in line with the tables.

The tables are the truth. If a stream lost records (a broker set up anew), `reconcile` writes what differs at the start.
"""

from __future__ import annotations

from typing import Any

import structlog
from google.protobuf.message import Message

from chart.common import outbox
from chart.common.database import Connection, Pool
from chart.common.platform_settings import TOPIC as SETTINGS
from chart.common.streams import Broker
from chart.registry import repository
from chart.registry.repository import (
    LINK,
    NODE,
    PLATFORM_SETTINGS,
    POLICY,
    SENSING_CONFIGURATION,
    SESSION_RULE,
    TENANT,
    Kind,
    Stored,
)
from chart.v1 import (
    platform_settings_pb2,
    policy_pb2,
    sensing_configuration_pb2,
    sensing_mesh_pb2,
    session_rule_pb2,
    tenant_pb2,
    topology_pb2,
)

TOPOLOGY = "chart.topology.v1"
POLICIES = "chart.policy.v1"
SENSING_CONFIGURATIONS = "chart.sensing-configuration.v1"
SESSION_RULES = "chart.session-rule.v1"
TENANTS = "chart.tenant.v1"

# Stream -> kinds of entities in it.
CONTENTS: dict[str, tuple[Kind[Any], ...]] = {
    TOPOLOGY: (NODE, LINK),
    POLICIES: (POLICY,),
    SETTINGS: (PLATFORM_SETTINGS,),
    SENSING_CONFIGURATIONS: (SENSING_CONFIGURATION,),
    SESSION_RULES: (SESSION_RULE,),
    TENANTS: (TENANT,),
}

_log = structlog.get_logger("chart.registry.streams")


def topic_of(kind: Kind[Any]) -> str | None:
    """The stream that carries entities of a kind; None: what others read of it is made of it (meshes)."""
    return next((topic for topic, kinds in CONTENTS.items() if kind in kinds), None)


def value_of(message: Message, revision: int) -> Message:
    """The record's message for an entity at a revision."""
    if isinstance(message, topology_pb2.Node):
        return topology_pb2.TopologyEntity(revision=revision, node=message)
    if isinstance(message, topology_pb2.Link):
        return topology_pb2.TopologyEntity(revision=revision, link=message)
    assert isinstance(
        message,
        (
            platform_settings_pb2.PlatformSettings,
            policy_pb2.Policy,
            sensing_configuration_pb2.SensingConfiguration,
            sensing_mesh_pb2.SensingMesh,
            session_rule_pb2.SessionRule,
            tenant_pb2.Tenant,
        ),
    )
    numbered = type(message)()
    numbered.CopyFrom(message)  # type: ignore[arg-type]  # the same type
    numbered.revision = revision
    return numbered


async def announce(connection: Connection, kind: Kind[Any], identity: str, stored: Stored[Any] | None) -> None:
    """Queue the record of a change in its transaction; None announces a deletion."""
    topic = topic_of(kind)
    if topic is None:
        return
    value = None if stored is None else value_of(stored.message, stored.revision)
    await outbox.add(connection, topic, identity, value)


async def reconcile(pool: Pool, broker: Broker) -> int:
    """Queue a record for each entity whose stream says something else than its table; returns how many.

    Each entity is read again under its lock, so a change that happens meanwhile is not undone.
    """
    queued = 0
    for topic, kinds in CONTENTS.items():
        state = await broker.compacted(topic)
        try:
            async with pool.connection() as connection:
                tables = {kind: await repository.listing(connection, kind) for kind in kinds}
            wanted = {
                stored.message.id: (kind, value_of(stored.message, stored.revision))
                for kind, rows in tables.items()
                for stored in rows
            }
            differing = {key: kind for key, (kind, value) in wanted.items() if state.get(key) != value}
            # In the topology only a link's id has a colon; the other streams have one kind each.
            stale = {key: kinds[-1] if ":" in key else kinds[0] for key, _ in state.items() if key not in wanted}
            for key, kind in {**differing, **stale}.items():
                async with pool.connection() as connection, connection.transaction():
                    await repository.lock(connection, kind, key)
                    await announce(connection, kind, key, await repository.get(connection, kind, key))
                queued += 1
        finally:
            await state.close()
    if queued:
        _log.warning("streams differed from the tables and were written again", records=queued)
    return queued
