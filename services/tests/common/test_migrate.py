"""Migrations on a real PostgreSQL: complete, repeatable, safe for two callers, owned by the services' roles."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy
from support.postgres import role_url

from chart.common import migrate

pytestmark = pytest.mark.contract


def test_upgrade_twice_and_at_once_leaves_one_of_everything(postgres_url: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(migrate.upgrade, postgres_url) for _ in range(2)]:
            done.result(60)
    with psycopg.connect(postgres_url) as connection:
        versions = connection.execute("SELECT count(*) FROM registry.alembic_version").fetchone()
    assert versions == (1,)


def test_a_service_owns_its_tables_and_cannot_read_those_of_others(postgres_url: str) -> None:
    with psycopg.connect(role_url(postgres_url, "registry")) as connection:
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() is not None
        assert connection.execute("SELECT current_schema()").fetchone() == ("registry",)
    with (
        psycopg.connect(role_url(postgres_url, "archiver")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT * FROM registry.node")


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


def test_timescaledb_is_detected_as_the_server_says(postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        installed = connection.execute(
            sqlalchemy.text("SELECT count(*) FROM pg_extension WHERE extname = 'timescaledb'")
        ).scalar()
        assert migrate.has_timescaledb(connection) == bool(installed)
    engine.dispose()
