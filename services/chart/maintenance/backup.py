"""Backup and restore of what CHART cannot get back from anywhere else: the database, and the embedded key store.

A backup is a folder: `database.dump` (pg_dump's custom format), `roles.json` (the services' roles with their hashed
passwords), `keys.tar` (the key store's files, when one was named) and `manifest.json`, which has the number of rows of
every table at the moment of the dump, and a check sum of every file. A restore counts again and compares; a drill
restores into a server of its own, so that production is never touched. Streams are no part of it: what they hold beyond
their retention is in the database, and services publish their state anew.

Keys in Vault are Vault's to back up (docs/operations.md): its snapshot belongs to the same backup.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from chart.common.files import sync_folder, write_private
from chart.common.migrate import SERVICES
from chart.common.processes import end_process
from chart.maintenance import after_restore, postgres_server
from chart.v1 import audit_pb2

FORMAT = 1
DUMP, ROLES, KEYS, MANIFEST = "database.dump", "roles.json", "keys.tar", "manifest.json"
LIMIT_S = 3600.0
# A key store has a handful of small files; anything else was named by mistake.
KEYS_BYTES_MAX = 16 * 1024 * 1024
SERVER_LIMIT_S = 60.0
SERVER_LOOK_S = 0.1
SERVER_END_LIMIT_S = 20.0


class BackupError(RuntimeError):
    """What failed, and what to do."""


@dataclass(frozen=True)
class Outcome:
    """A finished restore: rows by table, and how long it took."""

    rows: Mapping[str, int]
    taken_at: str
    seconds: float
    # What the audit says was revoked and released after the backup, and is so again; None: it was not asked.
    caught_up: Mapping[str, int] | None = None


def counts(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """Rows of every table of the services' schemas, by `schema.table`; partitions count in their table."""
    tables = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1, 2",
        (list(SERVICES),),
    ).fetchall()
    found = {}
    for schema, table in tables:
        row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))).fetchone()
        assert row is not None
        found[f"{schema}.{table}"] = int(row[0])
    return found


def back_up(url: str, folder: Path, keys: Path | None = None, programs: Sequence[str] = ()) -> Path:
    """Write a backup into a new folder below `folder`; services go on meanwhile. Returns the new folder.

    Args:
        url: `postgresql://...` of the administrator.
        keys: the embedded key store's folder (`authority/store` in the authority's state); None: the keys are in Vault.
        programs: what stands before `pg_dump` on its command line, when those of the server's version are in a
            container: `docker exec -i -e PGPASSWORD NAME`. They reach the server at the same address.

    Raises:
        BackupError: no answer, or pg_dump failed; nothing is left that looks like a backup.
    """
    taken = datetime.now(UTC)
    final = folder / f"chart-{taken:%Y%m%dT%H%M%SZ}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".chart-", dir=folder) as scratch:
        place = Path(scratch) / "backup"
        place.mkdir(mode=0o700)
        try:
            rows, extension = _dump(url, place, programs)
        except psycopg.Error as error:
            msg = f"the database does not answer: {error}"
            raise BackupError(msg) from error
        if keys is not None:
            write_private(place / KEYS, _pack(keys))
        sums = {path.name: _sum(path) for path in sorted(place.iterdir())}
        manifest = {
            "format": FORMAT,
            "taken_at": taken.isoformat(),
            "timescaledb": extension,
            "rows": rows,
            "sha256": sums,
        }
        write_private(place / MANIFEST, json.dumps(manifest, indent=1).encode())
        sync_folder(place)
        place.rename(final)
        sync_folder(folder)
    return final


def _dump(url: str, place: Path, programs: Sequence[str]) -> tuple[dict[str, int], str]:
    """Dump and count in one snapshot; also the version of TimescaleDB, empty without it."""
    with psycopg.connect(url, connect_timeout=10) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        exported = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert exported is not None
        rows = counts(connection)
        (place / DUMP).touch(mode=0o600)
        with (place / DUMP).open("wb") as dump:
            options = ("--format=custom", f"--snapshot={exported[0]}", "--no-password")
            _run([*programs, "pg_dump"], url, *options, stdout=dump)
            os.fsync(dump.fileno())
        roles = connection.execute(
            "SELECT rolname, rolpassword FROM pg_authid WHERE rolname = ANY(%s)", (list(SERVICES),)
        ).fetchall()
        extension = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'").fetchone()
    write_private(place / ROLES, json.dumps(dict(roles)).encode())
    return rows, str(extension[0]) if extension else ""


def verified(backup: Path) -> dict[str, Any]:
    """The manifest of a backup whose files are whole.

    Raises:
        BackupError: it is no backup, of another format, or damaged.
    """
    try:
        manifest: dict[str, Any] = json.loads((backup / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{backup} is no backup: {error}"
        raise BackupError(msg) from error
    if manifest.get("format") != FORMAT:
        msg = f"{backup} has format {manifest.get('format')}, this version reads {FORMAT}"
        raise BackupError(msg)
    for name, wanted in manifest["sha256"].items():
        path = backup / name
        if not path.is_file() or _sum(path) != wanted:
            msg = f"{path} is damaged or missing: take an older backup"
            raise BackupError(msg)
    return manifest


def restore(
    backup: Path,
    url: str,
    keys: Path | None = None,
    programs: Sequence[str] = (),
    records: Iterable[audit_pb2.AuditRecord] | None = None,
) -> Outcome:
    """Restore into an empty database, and the keys into a folder that is not there; compares every table's rows. Then
    no number that was used after the backup is used again (`after_restore`).

    Args:
        programs: see `back_up`.
        records: of the audit stream: what they say was revoked or released after the backup is so again.

    Raises:
        BackupError: the backup is damaged, there is something at the target already, or a count differs.
    """
    began = time.monotonic()
    manifest = verified(backup)
    if keys is not None and not (backup / KEYS).exists():
        msg = f"{backup} has no keys: it was taken without a key store"
        raise BackupError(msg)
    try:
        _roles(backup, url)
        with _hypertables(url, manifest["timescaledb"]), (backup / DUMP).open("rb") as dump:
            _run([*programs, "pg_restore"], url, "--exit-on-error", "--no-password", stdin=dump)
        with psycopg.connect(url, connect_timeout=10) as connection:
            found = counts(connection)
    except psycopg.Error as error:
        msg = f"the database does not take the backup: {error}"
        raise BackupError(msg) from error
    differing = [
        f"{table}: {found.get(table, 0)} of {rows}"
        for table, rows in manifest["rows"].items()
        if found.get(table) != rows
    ]
    if differing:
        msg = f"rows differ after the restore: {', '.join(differing)}"
        raise BackupError(msg)
    caught_up = _go_on(url, manifest["taken_at"], records)
    if keys is not None:
        _unpack(backup / KEYS, keys)
    return Outcome(found, manifest["taken_at"], time.monotonic() - began, caught_up)


def _go_on(url: str, taken_at: str, records: Iterable[audit_pb2.AuditRecord] | None) -> dict[str, int] | None:
    """What must not come back with the backup, in one transaction."""
    now_us = time.time_ns() // 1000
    from_us = int(datetime.fromisoformat(taken_at).timestamp() * 1e6) - after_restore.MARGIN_US
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            after_restore.jump(connection, now_us)
            if records is None:
                return None
            return after_restore.catch_up(connection, after_restore.since(records, from_us), now_us)
    except psycopg.Error as error:
        msg = f"the restored database cannot be brought forward, do not start services on it: {error}"
        raise BackupError(msg) from error


@contextmanager
def _hypertables(url: str, version: str) -> Iterator[None]:
    """A restore of hypertables, as TimescaleDB's manual has it: the same version, and its hooks around the restore."""
    if not version:
        yield
        return
    with psycopg.connect(url, connect_timeout=10, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE EXTENSION IF NOT EXISTS timescaledb VERSION {}").format(sql.Literal(version))
        )
        connection.execute("SELECT timescaledb_pre_restore()")
        try:
            yield
        finally:
            connection.execute("SELECT timescaledb_post_restore()")


def _roles(backup: Path, url: str) -> None:
    """Make the services' roles where they are missing; an empty database is required."""
    stored: dict[str, str | None] = json.loads((backup / ROLES).read_text(encoding="utf-8"))
    with psycopg.connect(url, connect_timeout=10) as connection:
        there = [
            row[0]
            for row in connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname = ANY(%s)", (list(SERVICES),)
            ).fetchall()
        ]
        if there:
            msg = f"the database has the schemas {', '.join(there)}: restore into an empty one (CREATE DATABASE chart)"
            raise BackupError(msg)
        known = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
        for role, password in stored.items():
            if role not in known:
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
            if password:
                # Already hashed: the server stores it as it is.
                connection.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(password))
                )
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(role)))


def drill(backup: Path) -> Outcome:
    """Rehearse a disaster: restore into a new server on loopback, count, and throw it away again.

    Raises:
        BackupError: what would have gone wrong on the day.
    """
    with tempfile.TemporaryDirectory(prefix="chart-drill-") as scratch, _server(Path(scratch)) as url:
        keys = Path(scratch) / "keys" if (backup / KEYS).exists() else None
        return restore(backup, url, keys)


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    """An empty database `chart` on a server of its own, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
    command = postgres_server.prepare(directory / "postgres", port)
    with (directory / "postgres.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        starting = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, psycopg.OperationalError) and process.poll() is None),
            wait=wait_fixed(SERVER_LOOK_S),
            stop=stop_after_delay(SERVER_LIMIT_S),
            reraise=True,
        )
        try:
            url = starting(postgres_server.create_database, port)
        except psycopg.OperationalError as error:
            msg = f"the server of the drill did not start: {error}"
            raise BackupError(msg) from error
        yield url
    finally:
        end_process(process, SERVER_END_LIMIT_S)


def _program(name: str) -> str:
    """pg_dump and pg_restore of the newest installed version, as servers refuse dumps by older ones."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else name


def _run(
    command: Sequence[str], url: str, *arguments: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None
) -> None:
    """Run a program against a database; the password goes by its environment, as every user may read command lines."""
    *before, name = command
    parameters = conninfo_to_dict(url)
    password = parameters.pop("password", None)
    secret = {"PGPASSWORD": str(password)} if password else {}
    try:
        done = subprocess.run(
            [*before, name if before else _program(name), "--dbname", make_conninfo("", **parameters), *arguments],
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, **secret, "PGAPPNAME": "chart-backup"},
        )
    except FileNotFoundError:
        missing, package = (before[0], before[0]) if before else (name, "postgresql-client")
        msg = f"{missing} is not installed: install the package `{package}`"
        raise BackupError(msg) from None
    except subprocess.TimeoutExpired:
        msg = f"{name} did not end within {LIMIT_S:.0f} s"
        raise BackupError(msg) from None
    if done.returncode:
        msg = f"{name} failed: {done.stderr.decode(errors='replace').strip()[-1000:]}"
        raise BackupError(msg)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pack(folder: Path) -> bytes:
    """The plain files of a folder as a tar archive."""
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if not files:
        msg = f"{folder} has no files: name the key store's folder"
        raise BackupError(msg)
    if sum(path.stat().st_size for path in files) > KEYS_BYTES_MAX:
        msg = f"{folder} is larger than a key store: name the key store's folder"
        raise BackupError(msg)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in files:
            archive.add(path, arcname=path.name, recursive=False)
    return buffer.getvalue()


def _unpack(archive: Path, folder: Path) -> None:
    """The archive's files into a new folder, readable by nobody else."""
    if folder.exists() and any(folder.iterdir()):
        msg = f"{folder} is not empty: keys are never overwritten"
        raise BackupError(msg)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            content = packed.extractfile(member)
            if content is None or "/" in member.name:
                msg = f"{archive} contains {member.name}, which no key store has"
                raise BackupError(msg)
            write_private(folder / member.name, content.read())
