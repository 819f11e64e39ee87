"""Retention of tables that only grow: what is older than the policy is written to files, then deleted.

Rows go in batches, each in one transaction: they are locked, written to a file that is on disk under its final name,
and deleted; then the transaction commits. What fails in between is deleted by the next run, whose file has these rows
once more. Requests that are not over, callbacks that are not delivered and open alerts stay whatever their age.
"""

from __future__ import annotations

import gzip
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

BATCH_ROWS = 20_000
DAY_US = 86_400 * 1_000_000
# Of an ended request that is no longer kept in its stream (reservations, lifecycle.at_due).
FOREVER_US = (1 << 63) - 1


@dataclass(frozen=True)
class Rule:
    """Which rows of a table may go. ``over`` has the placeholder %(before_us)s; ``also`` is what is exported with a row
    as more fields of it, and deleted with it by a foreign key or in ``then``.
    """

    kind: str
    schema: str
    table: str
    key: str
    over: str
    also: str = "'{}'::jsonb"
    then: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Schema and table."""
        return f"{self.schema}.{self.table}"


def _audit(schema: str) -> Rule:
    return Rule("audits", schema, "audit", "id", "t.at < to_timestamp(%(before_us)s / 1e6)")


# By kind, days that are kept when nobody says otherwise.
DEFAULT_DAYS: Mapping[str, int] = {"requests": 400, "callbacks": 30, "accounts": 400, "audits": 400, "alerts": 400}

RULES: tuple[Rule, ...] = (
    Rule(
        "requests",
        "reservations",
        "rate_request",
        "id",
        f"t.lifecycle IN (4, 5, 6) AND t.due_at_us = {FOREVER_US} AND t.updated_at_us < %(before_us)s",
        "jsonb_build_object("
        "'confirmations', (SELECT jsonb_agg(to_jsonb(c)) FROM reservations.confirmation c WHERE c.request_id = t.id),"
        "'receipt', (SELECT to_jsonb(r) FROM reservations.receipt r WHERE r.request_id = t.id))",
        ("DELETE FROM reservations.receipt r USING doomed d WHERE r.request_id = d.key",),
    ),
    # Delivered, or given up.
    Rule("callbacks", "reservations", "callback", "id", "t.state IN (3, 4) AND t.created_at_us < %(before_us)s"),
    # What receipts are signed from. An account of a request that goes on is updated all the time.
    Rule(
        "accounts",
        "authority",
        "account",
        "request_id",
        "t.updated_at_us < %(before_us)s AND NOT EXISTS (SELECT FROM authority.account_node n"
        " WHERE n.request_id = t.request_id AND n.updated_at_us >= %(before_us)s)"
        " AND NOT EXISTS (SELECT FROM reservations.rate_request q"
        " WHERE q.id = t.request_id AND q.lifecycle IN (1, 2, 3))",
        "jsonb_build_object('nodes', (SELECT jsonb_agg(to_jsonb(n)) FROM authority.account_node n"
        " WHERE n.request_id = t.request_id))",
        ("DELETE FROM authority.account_node n USING doomed d WHERE n.request_id = d.key",),
    ),
    *(_audit(schema) for schema in ("authority", "registry", "reservations", "tunnels")),
    Rule(
        "alerts",
        "archiver",
        "alert",
        "id",
        "t.resolved_at IS NOT NULL AND t.resolved_at < to_timestamp(%(before_us)s / 1e6)",
    ),
)


class RetentionError(RuntimeError):
    """What failed; nothing of the batch was deleted."""


@dataclass(frozen=True)
class Table:
    """A table that grows: rows, those that are over, and bytes of one with its indexes (0: there is none)."""

    name: str
    kind: str
    keep_days: int
    rows: int
    over: int
    bytes_per_row: int


@dataclass(frozen=True)
class Exported:
    """A file, the table that its rows were of, and how many they are."""

    file: Path
    table: str
    rows: int


def survey(admin_url: str, keep_days: Mapping[str, int], now_us: int | None = None) -> list[Table]:
    """What there is, and what the policy would delete.

    Raises:
        psycopg.Error: the database cannot be read.
    """
    found = []
    with psycopg.connect(admin_url) as connection:
        for rule in RULES:
            counted = connection.execute(
                f"SELECT count(*), count(*) FILTER (WHERE {rule.over}),"  # noqa: S608 - of RULES
                f" pg_total_relation_size('{rule.name}') FROM {rule.name} t",
                {"before_us": _before_us(rule, keep_days, now_us)},
            ).fetchone()
            assert counted is not None
            rows, over, octets = counted
            size = octets // rows if rows else 0
            found.append(Table(rule.name, rule.kind, keep_days[rule.kind], rows, over, size))
    return found


def prune(
    admin_url: str, folder: Path, keep_days: Mapping[str, int], now_us: int | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[Exported]:
    """Export and delete what is over, a batch at a time.

    Raises:
        RetentionError: a file could not be written as it must be.
        psycopg.Error: the database cannot be reached, or refused.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Two runs never write the same file.
    started = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"
    with psycopg.connect(admin_url, autocommit=True) as connection:
        for rule in RULES:
            parameters = {"before_us": _before_us(rule, keep_days, now_us), "most": batch_rows}
            number = 0
            while True:
                file = folder / f"{rule.name}-{started}-{number:04}.jsonl.gz"
                rows = _batch(connection, rule, file, parameters)
                if not rows:
                    break
                yield Exported(file, rule.name, rows)
                number += 1


def _before_us(rule: Rule, keep_days: Mapping[str, int], now_us: int | None) -> int:
    return (now_us if now_us is not None else time.time_ns() // 1000) - keep_days[rule.kind] * DAY_US


def _batch(connection: psycopg.Connection, rule: Rule, file: Path, parameters: Mapping[str, int]) -> int:
    """Export and delete up to a batch of rows; returns how many."""
    table, key = sql.Identifier(rule.schema, rule.table), sql.Identifier(rule.key)
    with connection.transaction():
        over = sql.SQL(rule.over)
        doomed = connection.execute(
            sql.SQL(
                "CREATE TEMP TABLE doomed ON COMMIT DROP AS SELECT t.{key} AS key FROM {table} t WHERE {over}"
                " ORDER BY 1 LIMIT %(most)s FOR UPDATE SKIP LOCKED"
            ).format(key=key, table=table, over=over),
            parameters,
        ).rowcount
        if not doomed:
            return 0
        export = sql.SQL(
            "COPY (SELECT to_jsonb(t) || {also} FROM {table} t JOIN doomed d ON t.{key} = d.key ORDER BY d.key)"
            " TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')"
        ).format(also=sql.SQL(rule.also), table=table, key=key)
        written = _write(connection, export, file)
        for statement in rule.then:
            connection.execute(statement.encode())
        deleted = connection.execute(
            sql.SQL("DELETE FROM {table} t USING doomed d WHERE t.{key} = d.key").format(table=table, key=key)
        ).rowcount
        if not doomed == written == deleted:
            file.unlink()
            msg = f"{rule.name}: {written} of {doomed} rows were exported and {deleted} would be deleted; nothing was"
            raise RetentionError(msg)
    return written


def _write(connection: psycopg.Connection, export: sql.Composed, file: Path) -> int:
    """Write rows, one JSON object a line; on disk under the file's name when this returns. Returns how many."""
    draft = file.with_suffix(".part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb") as packed, connection.cursor().copy(export) as rows:
                for part in rows:
                    packed.write(part)
            raw.flush()
            os.fsync(raw.fileno())
        # As it can be read again, not as it was meant.
        with gzip.open(draft, "rb") as back:
            written = sum(1 for _ in back)
        # Fails, instead of replacing it, where there is a file of this name.
        os.link(draft, file)
        draft.unlink()
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        msg = f"{file} cannot be written: {error}"
        raise RetentionError(msg) from error
    return written
