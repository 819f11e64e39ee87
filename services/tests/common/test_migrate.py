"""Migrations on a real PostgreSQL: complete, repeatable, safe for two callers, owned by the services' roles."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from chart.common import migrate, migrate_main
from support.postgres import role_url

contract = pytest.mark.contract


@contract
def test_upgrade_twice_and_at_once_leaves_one_of_everything(postgres_url: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(migrate.upgrade, postgres_url) for _ in range(2)]:
            done.result(60)
    with psycopg.connect(postgres_url) as connection:
        versions = connection.execute("SELECT count(*) FROM registry.alembic_version").fetchone()
    assert versions == (1,)


@contract
def test_a_service_owns_its_tables_and_cannot_read_those_of_others(postgres_url: str) -> None:
    with psycopg.connect(role_url(postgres_url, "registry")) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() is not None
        assert connection.execute("SELECT current_schema()").fetchone() == ("registry",)
    with (
        psycopg.connect(role_url(postgres_url, "archiver")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT * FROM registry.node")


@contract
def test_two_callers_on_an_empty_database(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE fresh")
    fresh = postgres_url.rsplit("/", 1)[0] + "/fresh"
    try:
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(migrate.upgrade, fresh) for _ in range(2)]:
                done.result(60)
        with psycopg.connect(fresh) as connection:
            assert connection.execute("SELECT count(*) FROM registry.node").fetchone() == (0,)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP DATABASE fresh WITH (FORCE)")


@contract
def test_timescaledb_is_detected_as_the_server_says(postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        installed = connection.execute(
            sqlalchemy.text("SELECT count(*) FROM pg_extension WHERE extname = 'timescaledb'")
        ).scalar()
        assert migrate.has_timescaledb(connection) == bool(installed)
    engine.dispose()


@contract
def test_roles_get_the_passwords_of_the_folder(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("it's \\ secret\n")
    passwords = migrate_main.read_passwords(str(tmp_path))
    assert passwords == {"registry": "it's \\ secret"}
    migrate.upgrade(postgres_url)
    migrate_main.set_passwords(postgres_url, passwords)
    with psycopg.connect(postgres_url) as connection:
        stored = connection.execute("SELECT rolname FROM pg_authid WHERE rolpassword LIKE 'SCRAM-SHA-256$%'").fetchall()
        connection.execute("ALTER ROLE registry PASSWORD NULL")
    assert ("registry",) in stored
    with psycopg.connect(role_url(postgres_url, "registry")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_folder_without_passwords_is_a_mistake(tmp_path: Path) -> None:
    assert migrate_main.read_passwords("") == {}
    with pytest.raises(migrate_main.MigrationSettingsError, match="no file named after a role"):
        migrate_main.read_passwords(str(tmp_path))
    (tmp_path / "archiver").write_text(" \n")
    with pytest.raises(migrate_main.MigrationSettingsError, match="archiver is empty"):
        migrate_main.read_passwords(str(tmp_path))


def test_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(migrate_main.ADMIN_URL, raising=False)
    with pytest.raises(SystemExit) as ended:
        migrate_main.main()
    assert ended.value.code == 2
    assert "CHART_DATABASE_ADMIN_URL is missing" in capsys.readouterr().err


def test_the_command_says_that_nobody_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(migrate_main.ADMIN_URL, "postgresql://chart@127.0.0.1:1/chart")
    monkeypatch.delenv(migrate_main.PASSWORDS_DIR, raising=False)
    with pytest.raises(SystemExit) as ended:
        migrate_main.main()
    assert ended.value.code == 1
    assert "refused" in capsys.readouterr().err
