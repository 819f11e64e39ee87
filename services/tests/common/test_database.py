"""The pool of connections on a real PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from chart.common import database
from chart.common.database import Pool
from chart.common.settings import BaseServiceSettings
from support.postgres import PostgresServer
from support.waiting import eventually

pytestmark = pytest.mark.contract


async def test_a_task_that_waits_for_a_connection_is_cancelled_when_one_comes(postgres: PostgresServer) -> None:
    settings = BaseServiceSettings(database_url=postgres.role_url("registry"), database_pool_size=2)
    async with database.pool(settings) as pool:
        for _ in range(20):
            held = [await pool.getconn() for _ in range(2)]
            waits = asyncio.create_task(one_connection(pool))
            await eventually(lambda: pool.get_stats().get("requests_waiting"), 5)
            # The connection reaches the task that waits, and the cancellation comes in the same round of the loop.
            for connection in held:
                await pool.putconn(connection)
            waits.cancel()
            done, _ = await asyncio.wait([waits], timeout=5)
            assert done
            assert waits.cancelled()
        assert pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"], "no connection was lost"


async def one_connection(pool: Pool) -> None:
    async with pool.connection():
        pass
