"""Databases that history is kept in: plain PostgreSQL and TimescaleDB, migrated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg.rows import dict_row

from chart.archiver.repository import Repository
from chart.common import migrate
from chart.common.database import Pool
from support.postgres import PostgresServer
from support.timescale import TimescaleServer


@pytest.fixture(scope="module", params=["postgresql", "timescaledb"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Name and the archiver's address of a database of its own, migrated."""
    name = str(request.param)
    directory = tmp_path_factory.mktemp(name)
    server: PostgresServer | TimescaleServer
    if name == "timescaledb":
        if missing := TimescaleServer.reason_missing():
            pytest.skip(missing)
        server = TimescaleServer(directory)
        server.start()
    else:
        server = PostgresServer(directory)
        server.start()
        server.create_database()
    migrate.upgrade(server.url)
    yield name, server.role_url("archiver")
    server.stop()


@pytest_asyncio.fixture
async def pool(database: tuple[str, str]) -> AsyncIterator[Pool]:
    kwargs: dict[str, Any] = {"row_factory": dict_row, "options": "-c timezone=UTC"}
    async with Pool(
        database[1],
        connection_class=psycopg.AsyncConnection[dict[str, Any]],
        kwargs=kwargs,
        min_size=1,
        max_size=1,
        open=False,
    ) as opened:
        yield opened


@pytest_asyncio.fixture
async def repository(pool: Pool) -> Repository:
    found = Repository(pool)
    await found.open()
    return found
