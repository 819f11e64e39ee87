"""One PostgreSQL server of the distribution, on loopback, in a data directory of its own.

PostgreSQL refuses to run as root. Started by root it runs in a user namespace that maps root to an ordinary user, so
its files stay in the state directory wherever that is and belong to whoever owns that.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import psycopg


class PostgresUnavailableError(RuntimeError):
    """The server cannot be run here; the message says what to do."""


def binaries() -> Path:
    """Folder with the newest installed server.

    Raises:
        PostgresUnavailableError: no server is installed.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    if not found:
        msg = "no PostgreSQL server in /usr/lib/postgresql: install the package `postgresql`"
        raise PostgresUnavailableError(msg)
    return found[-1].parent


def unprivileged(*command: str) -> tuple[str, ...]:
    """The command as an ordinary user when the caller is root, unchanged otherwise."""
    if os.geteuid() != 0:
        return command
    # The package's own user: initdb looks the name up.
    user = pwd.getpwnam("postgres")
    return ("unshare", "--user", f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}", *command)


def prepare(home: Path, port: int) -> tuple[str, ...]:
    """Create the cluster in ``home`` once; returns the command that serves it on ``port`` of loopback.

    Raises:
        PostgresUnavailableError: no server is installed, or initdb failed (the message has its output).
    """
    bin_dir = binaries()
    data = home / "data"
    home.mkdir(parents=True, exist_ok=True)
    if not (data / "PG_VERSION").exists():
        done = subprocess.run(
            unprivileged(
                str(bin_dir / "initdb"),
                *("--pgdata", str(data), "--username", "chart", "--auth", "trust"),
                *("--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"),
            ),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            msg = f"initdb failed: {done.stderr.strip()}"
            raise PostgresUnavailableError(msg)
    sockets = home / "sockets"
    sockets.mkdir(exist_ok=True)
    return unprivileged(
        str(bin_dir / "postgres"),
        *("-D", str(data), "-p", str(port)),
        *("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={_short(sockets)}"),
        *("-c", "max_connections=120", "-c", "shared_buffers=128MB", "-c", "wal_level=replica"),
    )


def _short(sockets: Path) -> str:
    """A socket path has at most 107 bytes; without room for it the server listens on loopback alone."""
    return str(sockets) if len(str(sockets)) < 80 else ""


def create_database(port: int) -> str:
    """Make the database `chart` when it is missing; returns the administrator's address of it."""
    server = f"postgresql://chart@127.0.0.1:{port}"
    with psycopg.connect(f"{server}/postgres", autocommit=True, connect_timeout=10) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = 'chart'").fetchone() is None:
            connection.execute("CREATE DATABASE chart")
    return f"{server}/chart"
