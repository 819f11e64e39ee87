"""A real PostgreSQL for tests, started exactly as the embedded platform starts it, with every schema migrated."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from chart_lab.platform import postgres as platform_postgres
from chart_lab.platform.settings import PlatformSettings
from support.processes import ServerProcess, free_ports


def role_url(url: str, role: str) -> str:
    """The same database for another role: each service has a role and a schema of its name."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}"))


class PostgresServer:
    """One server on a free port of loopback; ``stop``, ``kill`` and ``start`` keep port and data, for fault tests."""

    def __init__(self, directory: Path) -> None:
        self.settings = PlatformSettings(state_dir=directory, postgres_port=free_ports(1)[0])
        program = platform_postgres.prepare(self.settings)
        self._process = ServerProcess(
            "postgres", (*program.command, "-c", "fsync=off"), directory / "postgres.log", signal.SIGINT
        )

    @property
    def url(self) -> str:
        """The database as the administrator sees it."""
        return f"postgresql://chart@127.0.0.1:{self.settings.postgres_port}/chart"

    def role_url(self, role: str) -> str:
        """The database as a service sees it."""
        return role_url(self.url, role)

    def start(self) -> None:
        """Start, or start again, and wait until the server answers."""
        self._process.start(self._answers)

    def create_database(self) -> str:
        """Make the database; returns its address."""
        return platform_postgres.create_database(self.settings)

    def _answers(self) -> bool:
        server = self.url.rsplit("/", 1)[0]
        try:
            with psycopg.connect(f"{server}/postgres", connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def truncate(self, schema: str) -> None:
        """Empty every table of a service but Alembic's."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            rows = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'alembic_version'", (schema,)
            ).fetchall()
            if rows:
                tables = sql.SQL(", ").join(sql.Identifier(schema, name) for (name,) in rows)
                connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(tables))

    def stop(self) -> None:
        """Stop in good order."""
        self._process.stop()

    def kill(self) -> None:
        """End the postmaster as a power failure would; its children notice and end too."""
        self._process.kill()

    def pause(self) -> None:
        """Let the postmaster hang: no new connections, open ones go on."""
        self._process.pause()

    def resume(self) -> None:
        """End a pause."""
        self._process.resume()
