"""The registry's tables. One shape for all kinds: id, revision, the message as JSON, and columns that rules need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from psycopg import sql
from psycopg.types.json import Jsonb

from chart.common.database import Connection
from chart.v1 import (
    platform_settings_pb2,
    policy_pb2,
    sensing_configuration_pb2,
    sensing_mesh_pb2,
    session_rule_pb2,
    tenant_pb2,
    topology_pb2,
)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Kind(Generic[M]):
    """One kind of entity: its table, its message, and the columns taken from it."""

    name: str
    table: str
    message: type[M]
    columns: Callable[[Any], dict[str, str]]


NODE: Kind[topology_pb2.Node] = Kind("node", "node", topology_pb2.Node, lambda _: {})
LINK: Kind[topology_pb2.Link] = Kind(
    "link", "link", topology_pb2.Link, lambda link: {"from_node": link.from_node, "to_node": link.to_node}
)
PLATFORM_SETTINGS: Kind[platform_settings_pb2.PlatformSettings] = Kind(
    "platform settings", "platform_settings", platform_settings_pb2.PlatformSettings, lambda _: {}
)
POLICY: Kind[policy_pb2.Policy] = Kind("policy", "policy", policy_pb2.Policy, lambda _: {})
SENSING_CONFIGURATION: Kind[sensing_configuration_pb2.SensingConfiguration] = Kind(
    "sensing configuration",
    "sensing_configuration",
    sensing_configuration_pb2.SensingConfiguration,
    lambda configuration: {"source_node": configuration.source_node, "mesh": configuration.mesh},
)
SESSION_RULE: Kind[session_rule_pb2.SessionRule] = Kind(
    "session rule", "session_rule", session_rule_pb2.SessionRule, lambda _: {}
)
SENSING_MESH: Kind[sensing_mesh_pb2.SensingMesh] = Kind(
    "sensing mesh", "sensing_mesh", sensing_mesh_pb2.SensingMesh, lambda _: {}
)
TENANT: Kind[tenant_pb2.Tenant] = Kind("tenant", "tenant", tenant_pb2.Tenant, lambda _: {})


@dataclass(frozen=True)
class Stored(Generic[M]):
    """An entity and its revision."""

    message: M
    revision: int


async def lock(connection: Connection, kind: Kind[M], identity: str) -> None:
    """Let one transaction at a time change an entity, also one that does not exist yet."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", (f"registry.{kind.table}", identity)
    )


async def get(connection: Connection, kind: Kind[M], identity: str) -> Stored[M] | None:
    """One entity; None when there is none."""
    query = sql.SQL("SELECT revision, body FROM {} WHERE id = %s").format(sql.Identifier(kind.table))
    row = await (await connection.execute(query, (identity,))).fetchone()
    return None if row is None else _stored(kind, row)


async def listing(connection: Connection, kind: Kind[M], source_node: str = "") -> list[Stored[M]]:
    """Every entity in order of its id; ``source_node`` restricts sensing configurations."""
    query = sql.SQL("SELECT revision, body FROM {}").format(sql.Identifier(kind.table))
    arguments: tuple[str, ...] = ()
    if source_node:
        query += sql.SQL(" WHERE source_node = %s")
        arguments = (source_node,)
    cursor = await connection.execute(query + sql.SQL(" ORDER BY id"), arguments)
    return [_stored(kind, row) for row in await cursor.fetchall()]


async def next_revision(connection: Connection) -> int:
    """A revision that no entity had before."""
    row = await (await connection.execute("SELECT nextval('revision') AS revision")).fetchone()
    assert row is not None
    return int(row["revision"])


async def next_revisions(connection: Connection, count: int) -> list[int]:
    """As many revisions."""
    cursor = await connection.execute("SELECT nextval('revision') AS revision FROM generate_series(1, %s)", (count,))
    return [int(row["revision"]) for row in await cursor.fetchall()]


async def try_lock(connection: Connection, name: str) -> bool:
    """Whether this transaction is the only one that does this now."""
    cursor = await connection.execute(
        "SELECT pg_try_advisory_xact_lock(hashtext('registry'), hashtext(%s)) AS held", (name,)
    )
    row = await cursor.fetchone()
    return row is not None and bool(row["held"])


async def marks(connection: Connection, kinds: Iterable[Kind[Any]]) -> tuple[tuple[int, int], ...]:
    """Number and greatest revision of each kind: one of them changes with every change."""
    found = []
    for kind in kinds:
        query = sql.SQL("SELECT count(*) AS many, coalesce(max(revision), 0) AS newest FROM {}")
        row = await (await connection.execute(query.format(sql.Identifier(kind.table)))).fetchone()
        assert row is not None
        found.append((int(row["many"]), int(row["newest"])))
    return tuple(found)


async def put(connection: Connection, kind: Kind[M], identity: str, message: M, revision: int) -> None:
    """Insert or replace an entity."""
    values: dict[str, Any] = {
        "id": identity,
        "revision": revision,
        "body": Jsonb(json_format.MessageToDict(message, preserving_proto_field_name=True)),
        **kind.columns(message),
    }
    names = [sql.Identifier(name) for name in values]
    updates = [sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in names[1:]]
    query = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}, updated_at = now()").format(
        sql.Identifier(kind.table),
        sql.SQL(", ").join(names),
        sql.SQL(", ").join([sql.Placeholder()] * len(values)),
        sql.SQL(", ").join(updates),
    )
    await connection.execute(query, list(values.values()))


async def delete(connection: Connection, kind: Kind[M], identity: str) -> None:
    """Remove an entity."""
    query = sql.SQL("DELETE FROM {} WHERE id = %s").format(sql.Identifier(kind.table))
    await connection.execute(query, (identity,))


async def ids(connection: Connection, kind: Kind[M]) -> list[str]:
    """Ids of every entity of a kind."""
    query = sql.SQL("SELECT id FROM {} ORDER BY id").format(sql.Identifier(kind.table))
    return [row["id"] for row in await (await connection.execute(query)).fetchall()]


async def keep_node(connection: Connection, identity: str) -> bool:
    """Whether a node exists; it then cannot be deleted before this transaction ends."""
    cursor = await connection.execute("SELECT 1 FROM node WHERE id = %s FOR KEY SHARE", (identity,))
    return await cursor.fetchone() is not None


async def keep_nodes(connection: Connection) -> set[str]:
    """All nodes; none can be deleted before this transaction ends."""
    cursor = await connection.execute("SELECT id FROM node FOR KEY SHARE")
    return {row["id"] for row in await cursor.fetchall()}


async def configurations_of_meshes(
    connection: Connection, mesh: str = "", node: str = ""
) -> dict[str, Stored[sensing_configuration_pb2.SensingConfiguration]]:
    """Sensing configurations that were made of meshes, by id: of all, of one, or those that name a node."""
    cursor = await connection.execute(
        "SELECT id, revision, body FROM sensing_configuration WHERE mesh <> '' AND (%(mesh)s = '' OR mesh = %(mesh)s)"
        " AND (%(node)s = '' OR source_node = %(node)s OR body->>'destination_node' = %(node)s)",
        {"mesh": mesh, "node": node},
    )
    return {row["id"]: _stored(SENSING_CONFIGURATION, row) for row in await cursor.fetchall()}


async def over(connection: Connection, before_us: int, most: int) -> list[str]:
    """Ids of sensing configurations whose validity ended before then, the first to end first."""
    cursor = await connection.execute(
        "SELECT id FROM sensing_configuration"
        " WHERE (body->>'valid_until_us')::bigint BETWEEN 1 AND %s ORDER BY (body->>'valid_until_us')::bigint LIMIT %s",
        (before_us, most),
    )
    return [row["id"] for row in await cursor.fetchall()]


async def users_of_node(connection: Connection, identity: str) -> tuple[list[str], list[str]]:
    """Ids of the links and of the sensing configurations that name a node; not of those that meshes made."""
    await connection.execute("SELECT 1 FROM node WHERE id = %s FOR UPDATE", (identity,))
    links = await connection.execute(
        "SELECT id FROM link WHERE from_node = %(id)s OR to_node = %(id)s ORDER BY id", {"id": identity}
    )
    configurations = await connection.execute(
        "SELECT id FROM sensing_configuration WHERE mesh = ''"
        " AND (source_node = %(id)s OR body->>'destination_node' = %(id)s) ORDER BY id",
        {"id": identity},
    )
    return [row["id"] for row in await links.fetchall()], [row["id"] for row in await configurations.fetchall()]


def _stored(kind: Kind[M], row: dict[str, Any]) -> Stored[M]:
    # Fields that a newer version wrote are skipped, not fatal, while both versions run.
    message = json_format.ParseDict(row["body"], kind.message(), ignore_unknown_fields=True)
    return Stored(message, int(row["revision"]))
