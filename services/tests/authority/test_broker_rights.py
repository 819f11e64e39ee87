"""Rights of nodes at the broker while the database does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import psycopg_pool
import pytest

from chart.authority import broker_rights, repository
from chart.authority.broker_rights import BrokerRights
from chart.common import catalogue
from chart.common.broker_access import Difference
from chart.common.database import Connection, Pool
from support.waiting import eventually


class Busy:
    """A pool that has no connection the first two times that it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        self.asked += 1
        if self.asked <= 2:
            raise psycopg_pool.PoolTimeout("couldn't get a connection after 2.00 sec")
        yield cast(Connection, None)


async def test_a_database_that_does_not_answer_ends_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(_: Connection) -> list[str]:
        return []

    monkeypatch.setattr(broker_rights, "RETRY_S", 0.01)
    monkeypatch.setattr(repository, "active_elements", nobody)
    monkeypatch.setattr(BrokerRights, "_make", lambda *_: Difference())
    pool = Busy()
    rights = BrokerRights(cast(Pool, pool), catalogue.load(), "127.0.0.1:1")
    looking = asyncio.create_task(rights.run())
    try:
        await eventually(lambda: pool.asked > 2)
        assert not looking.done()
        # Every look from now on succeeds, and whoever enrols waits for one.
        await eventually(rights.settled)
    finally:
        looking.cancel()
