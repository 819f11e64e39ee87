"""Revisions and long poll: who asks for what changed since a revision waits here until there is something.

PostgreSQL notifies every replica at commit; a look every second catches what a lost notification would miss. News
of keys go to `keys`, which holds them for as long as this listens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Gauge

from chart.authority import keys, repository
from chart.common.database import Connection, Pool
from chart.common.retries import for_ever

POLL_S = 1.0
RETRY_S = 1.0

REVISION = Gauge("chart_authority_revision_info", "Newest revision that this replica has seen")

_log = structlog.get_logger("chart.authority")


class Changes:
    """Follows the revision of the tables."""

    def __init__(self, pool: Pool, refresh: Callable[[], Awaitable[None]], held: keys.Keys) -> None:
        self._pool = pool
        self._refresh = refresh
        self._keys = held
        self._changed = asyncio.Event()
        self.revision = 0

    async def run(self) -> None:
        """Follow until cancelled; survives an absent database."""

        def told(error: Exception, _: float) -> None:
            _log.warning("changes cannot be followed, trying again", reason=str(error))

        await for_ever(self._follow, (psycopg.Error, psycopg_pool.PoolTimeout, OSError), told, RETRY_S)

    async def _follow(self) -> None:
        async with self._pool.connection() as connection:
            await connection.set_autocommit(True)
            try:
                for channel in (repository.CHANNEL, keys.CHANNEL):
                    await connection.execute(f"LISTEN {channel}")
                self._keys.follow()
                while True:
                    await self._look(connection)
                    await self._listen(connection)
            finally:
                # Never handed on: it listens.
                await connection.close()

    async def _listen(self, connection: Connection) -> None:
        """Take what is told, until there is a reason to look."""
        end = time.monotonic() + POLL_S
        look = False
        while not look and (left_s := end - time.monotonic()) > 0:
            async for told in connection.notifies(timeout=left_s, stop_after=1):
                if told.channel == keys.CHANNEL:
                    self._keys.changed(told.payload)
                else:
                    look = True

    async def _look(self, connection: Connection) -> None:
        await self._refresh()
        revision, _ = await repository.revision(connection)
        self._keys.heard()
        if revision != self.revision:
            self.revision = revision
            REVISION.set(revision)
            self._changed.set()
            self._changed = asyncio.Event()

    async def wait(self, since: int, limit_s: float) -> None:
        """Return when there is something newer than ``since``, or after the limit."""
        end = asyncio.get_running_loop().time() + limit_s
        while self.revision <= since and (left_s := end - asyncio.get_running_loop().time()) > 0:
            changed = self._changed
            if self.revision > since:
                return
            try:
                async with asyncio.timeout(left_s):
                    await changed.wait()
            except TimeoutError:
                return
