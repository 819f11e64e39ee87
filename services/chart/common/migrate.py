"""Migrations: one Alembic environment, one schema, role and version table per service.

`upgrade` may be called by several at once and again at any time. Everything runs on plain PostgreSQL; where the
timescaledb extension can be had it is created and migrations may use it (`has_timescaledb`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy
import structlog
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text

from chart.common.places import migrations_dir

# Every service with tables of its own; its role and its schema bear its name.
SERVICES = ("registry", "reservations", "archiver", "authority", "tunnels")
# Any number, the same for all callers.
_LOCK = 0x43484152
_LOCK_LIMIT_S = 120

_log = structlog.get_logger("chart.migrate")


def upgrade(admin_url: str) -> None:
    """Bring every schema of the database up to date; creates roles and schemas that are missing.

    Args:
        admin_url: ``postgresql://...`` of a role that may create roles and schemas.

    Raises:
        sqlalchemy.exc.OperationalError: no answer, or another caller held the lock for 120 s.
    """
    engine = sqlalchemy.create_engine(_with_driver(admin_url), poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect() as guard:
            guard.execute(text(f"SET lock_timeout = '{_LOCK_LIMIT_S}s'"))
            guard.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            guard.commit()
            try:
                _prepare(engine)
                for service in SERVICES:
                    _upgrade_service(engine, service)
            finally:
                guard.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
                guard.commit()
    finally:
        engine.dispose()


def _with_driver(url: str) -> str:
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url.removeprefix(scheme)
    return url


def _prepare(engine: Engine) -> None:
    """Roles, schemas, extension."""
    with engine.begin() as connection:
        for service in SERVICES:
            known = connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = :r"), {"r": service}).scalar()
            if not known:
                connection.execute(text(f'CREATE ROLE "{service}" LOGIN'))
            superuser = connection.execute(text("SELECT usesuper FROM pg_user WHERE usename = current_user")).scalar()
            if not superuser:
                connection.execute(text(f'GRANT "{service}" TO CURRENT_USER'))
            connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{service}" AUTHORIZATION "{service}"'))
    with engine.begin() as connection:
        offered = connection.execute(text("SELECT 1 FROM pg_available_extensions WHERE name = 'timescaledb'")).scalar()
        if offered and not has_timescaledb(connection):
            try:
                with connection.begin_nested():
                    connection.execute(text("CREATE EXTENSION timescaledb"))
            except sqlalchemy.exc.DBAPIError as error:
                _log.warning("going on without timescaledb, it cannot be created", reason=str(error.orig))


def _upgrade_service(engine: Engine, service: str) -> None:
    versions = migrations_dir() / service / "versions"
    if not any(versions.glob("*.py")):
        return
    with engine.connect() as connection:
        # The tables belong to the service's role.
        connection.execute(text(f'SET ROLE "{service}"'))
        connection.execute(text(f'SET search_path TO "{service}", public'))
        connection.commit()
        command.upgrade(configuration(service, versions, connection), "head")
        connection.commit()
    _log.info("schema is up to date", schema=service)


def configuration(service: str, versions: Path, connection: Connection) -> Config:
    """Alembic's configuration for one service, without a file."""
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    config.set_main_option("version_locations", str(versions).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    config.attributes["schema"] = service
    return config


def has_timescaledb(connection: Connection) -> bool:
    """Whether the timescaledb extension is there to be used."""
    return bool(connection.execute(text("SELECT 1 FROM pg_extension WHERE extname = 'timescaledb'")).scalar())


def has_timescale_policies(connection: Connection) -> bool:
    """Whether timescaledb is there with what its community licence adds: compression and continuous aggregates."""
    if not has_timescaledb(connection):
        return False
    licence = connection.execute(text("SELECT current_setting('timescaledb.license', true)")).scalar()
    return licence == "timescale"


def common_tables(op: Any) -> None:
    """The tables that `outbox` and `audit` need; call in a service's first migration with alembic's ``op``."""
    op.execute(
        """
        CREATE TABLE outbox (
            id bigserial PRIMARY KEY,
            topic text NOT NULL,
            key text NOT NULL,
            payload bytea,
            headers jsonb NOT NULL DEFAULT '{}',
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            published_at timestamptz
        )
        """
    )
    op.execute("CREATE INDEX outbox_waiting ON outbox (id) WHERE published_at IS NULL")
    op.execute("CREATE INDEX outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL")
    op.execute(
        """
        CREATE TABLE audit (
            id text PRIMARY KEY,
            at timestamptz NOT NULL,
            actor text NOT NULL,
            action text NOT NULL,
            subject text NOT NULL,
            detail jsonb NOT NULL,
            trace_id text NOT NULL DEFAULT ''
        )
        """
    )
    op.execute("CREATE INDEX audit_subject ON audit (subject, at)")


def drop_common_tables(op: Any) -> None:
    """Undo `common_tables`."""
    op.execute("DROP TABLE audit")
    op.execute("DROP TABLE outbox")
