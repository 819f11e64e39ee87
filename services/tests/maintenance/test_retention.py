"""Retention on a real database: what is over goes to files and is gone, everything else stays."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from chart.maintenance import cli
from chart.maintenance.retention import DAY_US, DEFAULT_DAYS, FOREVER_US, RetentionError, prune, survey
from support.postgres import PostgresServer

pytestmark = pytest.mark.contract
NOW_US = time.time_ns() // 1000
OLD_US, NEW_US = NOW_US - 500 * DAY_US, NOW_US - 5 * DAY_US
ENDED, LIVE = 4, 3


@pytest.fixture
def database(postgres: PostgresServer) -> PostgresServer:
    """Old and new rows of each kind."""
    for schema in ("authority", "registry", "reservations", "tunnels", "archiver"):
        postgres.truncate(schema)
    with psycopg.connect(postgres.url) as connection:
        for name, lifecycle, at_us, due_us in (
            ("old-1", ENDED, OLD_US, FOREVER_US),
            ("old-2", 5, OLD_US, FOREVER_US),
            ("old-live", LIVE, OLD_US, NOW_US),
            ("old-remembered", ENDED, OLD_US, NOW_US),
            ("new", ENDED, NEW_US, FOREVER_US),
        ):
            _request(connection, name, lifecycle, at_us, due_us)
            connection.execute("INSERT INTO reservations.confirmation VALUES (%s, 'alpha', %s)", (name, b"\x01"))
            connection.execute("INSERT INTO reservations.receipt VALUES (%s, 'bob', %s, %s)", (name, b"\x02", at_us))
            connection.execute("INSERT INTO authority.account VALUES (%s, 'bob', '{}', %s)", (name, at_us))
            connection.execute("INSERT INTO authority.account_node VALUES (%s, 'alpha', 1, 2, 3, %s)", (name, at_us))
        for name, state, at_us in (("done", 3, OLD_US), ("dead", 4, OLD_US), ("waits", 2, OLD_US), ("new", 3, NEW_US)):
            connection.execute(
                "INSERT INTO reservations.callback (id, request_id, owner, event, url, body, state, created_at_us,"
                " next_attempt_us) VALUES (%s, 'old-1', 'bob', 'e', 'u', 'line\n\"two\"', %s, %s, 0)",
                (name, state, at_us),
            )
        for schema in ("authority", "registry", "reservations", "tunnels"):
            for name, at_us in (("old", OLD_US), ("new", NEW_US)):
                connection.execute(
                    f"INSERT INTO {schema}.audit (id, at, actor, action, subject, detail, trace_id)"
                    " VALUES (%s, to_timestamp(%s / 1e6), 'a', 'b', 'c', '{}', '')",
                    (name, at_us),
                )
        for name, resolved in (("over", OLD_US), ("open", None)):
            connection.execute(
                "INSERT INTO archiver.alert VALUES (%s, %s, 's', '', 1, 1, now(), now(), to_timestamp(%s / 1e6))",
                (name, name, resolved),
            )
    return postgres


def _request(connection: psycopg.Connection, name: str, lifecycle: int, at_us: int, due_us: int) -> None:
    """A row of which only what retention looks at matters; the rest as the columns' types allow."""
    columns = connection.execute(
        "SELECT column_name, data_type, is_nullable = 'NO' AND column_default IS NULL FROM information_schema.columns"
        " WHERE table_schema = 'reservations' AND table_name = 'rate_request' AND is_generated = 'NEVER'"
    ).fetchall()
    plain: dict[str, Any] = {"text": "", "bigint": 0, "smallint": 0, "integer": 0, "bytea": b"", "boolean": False}
    values: dict[str, Any] = {
        column: [] if kind == "ARRAY" else plain[kind] for column, kind, needed in columns if needed
    }
    values |= {"id": name, "lifecycle": lifecycle, "updated_at_us": at_us, "due_at_us": due_us, "owner": "bob"}
    values["end_us"] = 1
    names = ", ".join(values)
    connection.execute(
        f"INSERT INTO reservations.rate_request ({names}) VALUES ({', '.join(['%s'] * len(values))})",
        list(values.values()),
    )


def ids(database: PostgresServer, table: str, key: str = "id") -> set[str]:
    with psycopg.connect(database.url) as connection:
        return {row[0] for row in connection.execute(f"SELECT {key} FROM {table}")}


def test_what_is_over_is_exported_and_gone(database: PostgresServer, tmp_path: Path) -> None:
    due = {one.name: one.over for one in survey(database.url, DEFAULT_DAYS)}
    assert due == {
        **{"reservations.rate_request": 2, "reservations.callback": 2, "authority.account": 3, "archiver.alert": 1},
        **{f"{schema}.audit": 1 for schema in ("authority", "registry", "reservations", "tunnels")},
    }
    exported = list(prune(database.url, tmp_path / "kept", DEFAULT_DAYS, batch_rows=1))
    assert Counter(one.table for one in exported) == due
    rows = {
        (one.table, row.get("id") or row["request_id"]): row
        for one in exported
        for row in map(json.loads, gzip.decompress(one.file.read_bytes()).splitlines())
    }
    first = rows["reservations.rate_request", "old-1"]
    assert first["confirmations"] == [{"request_id": "old-1", "node": "alpha", "status": "\\x01"}]
    assert first["receipt"]["statement"] == "\\x02"
    assert rows["reservations.callback", "done"]["body"] == 'line\n"two"'
    assert rows["authority.account", "old-2"]["nodes"][0]["sent_bytes"] == 2
    assert ids(database, "reservations.rate_request") == {"old-live", "old-remembered", "new"}
    for table in ("reservations.confirmation", "reservations.receipt"):
        assert ids(database, table, "request_id") == {"old-live", "old-remembered", "new"}
    assert ids(database, "reservations.callback") == {"waits", "new"}
    assert ids(database, "authority.account", "request_id") == {"old-live", "new"}
    assert ids(database, "authority.account_node", "request_id") == {"old-live", "new"}
    assert ids(database, "registry.audit") == {"new"}
    assert ids(database, "archiver.alert") == {"open"}
    # Another run in the same second neither replaces nor removes a file.
    before = {file: file.read_bytes() for file in (tmp_path / "kept").iterdir()}
    assert len(before) == len(exported)
    assert not list(prune(database.url, tmp_path / "kept", DEFAULT_DAYS))
    assert {file: file.read_bytes() for file in (tmp_path / "kept").iterdir()} == before


def test_nothing_is_deleted_that_cannot_be_written(
    database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RetentionError, match="No space left"):
        list(prune(database.url, tmp_path, DEFAULT_DAYS))
    assert "old-1" in ids(database, "reservations.rate_request")


def test_as_a_command(database: PostgresServer, tmp_path: Path) -> None:
    words = ["prune", str(tmp_path / "kept"), "--admin-url", database.url]
    shown = CliRunner().invoke(cli.app, [*words, "--dry-run", "--json"])
    assert shown.exit_code == 0, shown.output
    table = next(one for one in json.loads(shown.stdout) if one["name"] == "reservations.callback")
    assert (table["rows"], table["over"], table["keep_days"]) == (4, 2, 30)
    assert table["bytes_per_row"] > 0
    done = CliRunner().invoke(cli.app, [*words, "--audits", "1000", "--json"])
    assert done.exit_code == 0, done.output
    tables = {json.loads(line)["table"] for line in done.stdout.splitlines()}
    assert tables == {"reservations.rate_request", "reservations.callback", "authority.account", "archiver.alert"}
    wrong = CliRunner().invoke(cli.app, ["prune", str(tmp_path), "--admin-url", "postgresql://127.0.0.1:1/x"])
    assert wrong.exit_code == 1
