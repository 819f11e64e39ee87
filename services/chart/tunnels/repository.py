"""The table of the service: what operators stated of each tunnel, as the message in JSON with its revision."""

from __future__ import annotations

from google.protobuf import json_format
from psycopg.types.json import Jsonb

from chart.common.database import Connection
from chart.v1.tunnels_pb2 import TunnelSettings


async def lock(connection: Connection, tunnel: str) -> None:
    """Let one transaction at a time change a tunnel, also one without settings yet."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtext('tunnels'), hashtext(%s))", (tunnel,))


async def get(connection: Connection, tunnel: str) -> TunnelSettings | None:
    """What was stated of one tunnel; None when nothing was."""
    cursor = await connection.execute("SELECT revision, body FROM tunnel WHERE id = %s", (tunnel,))
    row = await cursor.fetchone()
    return None if row is None else _stored(row)


async def listing(connection: Connection) -> list[TunnelSettings]:
    """Everything that was stated, by name."""
    cursor = await connection.execute("SELECT revision, body FROM tunnel ORDER BY id")
    return [_stored(row) for row in await cursor.fetchall()]


async def put(connection: Connection, settings: TunnelSettings) -> TunnelSettings:
    """Insert or replace; returns it with its new revision, which no tunnel had before."""
    row = await (await connection.execute("SELECT nextval('revision') AS revision")).fetchone()
    assert row is not None
    stored = TunnelSettings()
    stored.CopyFrom(settings)
    stored.revision = 0
    body = Jsonb(json_format.MessageToDict(stored, preserving_proto_field_name=True))
    await connection.execute(
        "INSERT INTO tunnel (id, revision, body) VALUES (%s, %s, %s)"
        " ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, body = EXCLUDED.body, updated_at = now()",
        (settings.tunnel, row["revision"], body),
    )
    stored.revision = int(row["revision"])
    return stored


async def delete(connection: Connection, tunnel: str) -> None:
    """Forget what was stated of a tunnel."""
    await connection.execute("DELETE FROM tunnel WHERE id = %s", (tunnel,))


async def names(connection: Connection) -> list[str]:
    """Tunnels of which something was stated."""
    return [row["id"] for row in await (await connection.execute("SELECT id FROM tunnel ORDER BY id")).fetchall()]


def _stored(row: dict[str, object]) -> TunnelSettings:
    # Fields that a newer version wrote are skipped, not fatal, while both versions run.
    body = row["body"]
    assert isinstance(body, dict)
    settings = json_format.ParseDict(body, TunnelSettings(), ignore_unknown_fields=True)
    settings.revision = int(str(row["revision"]))
    return settings
