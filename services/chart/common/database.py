"""PostgreSQL: a bounded pool of connections that waits with a limit and never runs a statement without one.

Each service has a role and a schema of the same name, so the default search path finds its tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from psycopg import AsyncConnection, OperationalError
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout, TooManyRequests

from chart.common.rpc_errors import means_unavailable
from chart.common.settings import BaseServiceSettings

# Rows come as dictionaries.
Connection = AsyncConnection[DictRow]


class Pool(AsyncConnectionPool[Connection]):
    """A pool whose waiting tasks can always be cancelled."""

    async def getconn(self, timeout: float | None = None) -> Connection:  # noqa: ASYNC109 (the base class has it)
        """As in the base class, and a cancellation is never lost.

        The pool waits by asyncio.wait_for, which in Python 3.11 forgets a cancellation that comes in the same round
        of the loop as the result (github.com/python/cpython/issues/86296): a loop would go on for ever.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        connection = await super().getconn(timeout)
        if task and task.cancelling() > before:
            await self.putconn(connection)
            raise asyncio.CancelledError
        return connection


OPEN_LIMIT_S = 30.0

_log = structlog.get_logger("chart.database")

means_unavailable(OperationalError, PoolTimeout, TooManyRequests)


@asynccontextmanager
async def pool(settings: BaseServiceSettings) -> AsyncIterator[Pool]:
    """A pool for the service's role, open inside the context.

    Waiting for a free connection is limited by ``database_wait_s`` (psycopg_pool.PoolTimeout), a statement by
    ``database_statement_timeout_ms``. A connection that the server closed is replaced before it is handed out.

    Raises:
        psycopg_pool.PoolTimeout: no connection within 30 s of opening.
    """
    if not settings.database_url:
        msg = "CHART_DATABASE_URL is not set: this service needs postgresql://<role>@<host>:<port>/chart"
        raise ValueError(msg)
    kwargs: dict[str, Any] = {
        "row_factory": dict_row,
        "connect_timeout": 5,
        "application_name": "chart",
        "options": (
            f"-c statement_timeout={settings.database_statement_timeout_ms}"
            " -c idle_in_transaction_session_timeout=30000 -c lock_timeout=5000 -c timezone=UTC"
        ),
    }
    opened = Pool(
        settings.database_url,
        connection_class=AsyncConnection[DictRow],
        kwargs=kwargs,
        min_size=1,
        max_size=settings.database_pool_size,
        timeout=settings.database_wait_s,
        max_waiting=500,
        max_idle=300,
        reconnect_timeout=60,
        check=Pool.check_connection,
        open=False,
        name="chart",
    )
    try:
        await opened.open(wait=True, timeout=OPEN_LIMIT_S)
        yield opened
    finally:
        await opened.close(timeout=5)


async def reachable(pool: Pool) -> None:
    """Health check: a connection can be had and answers; raises what psycopg raises when not."""
    async with pool.connection(timeout=2.0) as connection:
        await connection.execute("SELECT 1")
