"""Gives sensor pods their parts of the links' probing budgets, by what they report (`probe_leases`).

One replica of the registry gives at a time, while it holds an advisory lock. One that takes over knows only the newest
lease of each pod: what else may still count it finds out by waiting, so until then nobody gets more than it has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import psycopg
import structlog

from chart.common import database
from chart.common.database import Connection
from chart.common.platform_settings import PlatformView
from chart.common.records import StreamError
from chart.common.streams import Broker
from chart.registry import repository
from chart.registry.mesh_layout import UNKNOWN_CAPACITY_BPS
from chart.registry.probe_leases import PROBE_SHARE, VALID_US, WINDOW_US, Lease, LeaseBook, budget_of
from chart.registry.repository import LINK
from chart.v1.probe_lease_pb2 import ProbeLease, ProbeLeases

TOPIC = "chart.probe-lease.v1"
LOOK_EVERY_S = 1.0
RENEW_S = 5.0
RETRY_S = 2.0
_LOCK = "SELECT pg_try_advisory_lock(hashtext('registry'), hashtext('probe-leases')) AS held"
# Stands for whoever held what the one that takes over cannot know.
_UNKNOWN = ""

_log = structlog.get_logger("chart.registry.leases")

Wanted = Mapping[str, Mapping[str, int]]


class LeaseGiver:
    """Leases to all pods that report; ``wanted``: what each could use of each link, bytes a minute."""

    def __init__(
        self, pool: database.Pool, broker: Broker, wanted: Callable[[], Wanted], platform: PlatformView
    ) -> None:
        self._pool = pool
        self._broker = broker
        self._wanted = wanted
        self._platform = platform

    async def run(self) -> None:
        """Give leases whenever no other replica does, for ever."""
        while True:
            try:
                async with self._pool.connection() as connection:
                    await connection.set_autocommit(True)
                    try:
                        await self._lead(connection)
                    finally:
                        await connection.execute("SELECT pg_advisory_unlock_all()")
                        await connection.set_autocommit(False)
            except (psycopg.Error, StreamError) as error:
                _log.warning("no leases of probing budgets are given, trying again", reason=str(error))
            await asyncio.sleep(RETRY_S)

    async def _lead(self, connection: Connection) -> None:
        row = await (await connection.execute(_LOCK)).fetchone()
        if row is None or not row["held"]:
            return
        book = LeaseBook()
        known_bps = await self._capacities(connection)
        take_over(book, await self._newest(), known_bps, time.time_ns() // 1000, self._share)
        told: dict[str, tuple[dict[str, Lease], float]] = {}
        while True:
            # The lock is this connection's: without it nothing is given.
            capacities_bps = await self._capacities(connection)
            now_us = time.time_ns() // 1000
            made = book.lease(self._wanted(), capacities_bps, now_us, self._share)
            for node, leases in made.items():
                before, at_s = told.get(node, (None, 0.0))
                if leases == before and time.monotonic() - at_s < RENEW_S:
                    continue
                await self._broker.publish(TOPIC, node, record(node, leases, now_us + VALID_US))
                told[node] = (leases, time.monotonic())
            told = {node: one for node, one in told.items() if node in made}
            await asyncio.sleep(LOOK_EVERY_S)

    @property
    def _share(self) -> float:
        """Part of each link that probes may take; pods without another setting know the same default."""
        now = self._platform.now
        return now.probe_share if now.HasField("probe_share") else PROBE_SHARE

    async def _newest(self) -> dict[str, ProbeLeases]:
        state = await self._broker.compacted(TOPIC)
        try:
            return {node: value for node, value in state.items() if isinstance(value, ProbeLeases)}
        finally:
            await state.close()

    async def _capacities(self, connection: Connection) -> dict[str, int]:
        rows = await repository.listing(connection, LINK)
        return {row.message.id: row.message.capacity_bps or UNKNOWN_CAPACITY_BPS for row in rows}


def record(node: str, leases: Mapping[str, Lease], valid_until_us: int) -> ProbeLeases:
    """What a pod reads."""
    return ProbeLeases(
        node=node,
        valid_until_us=valid_until_us,
        leases=[
            ProbeLease(link_id=link, minute_bytes=one.minute_bytes, fair_bytes=one.fair_bytes)
            for link, one in sorted(leases.items())
        ],
    )


def take_over(
    book: LeaseBook,
    newest: Mapping[str, ProbeLeases],
    capacities_bps: Mapping[str, int],
    now_us: int,
    share: float = PROBE_SHARE,
) -> None:
    """Go on with the leases that another process gave last, if any may still count. Pure but for ``book``."""
    counting = {node: one for node, one in newest.items() if one.leases and one.valid_until_us + WINDOW_US > now_us}
    if not counting:
        return
    given: dict[str, int] = {}
    for node, one in counting.items():
        for lease in one.leases:
            book.taken_over(node, lease.link_id, lease.minute_bytes, one.valid_until_us)
            given[lease.link_id] = given.get(lease.link_id, 0) + lease.minute_bytes
    last_us = max(one.valid_until_us for one in counting.values())
    for link, capacity_bps in capacities_bps.items():
        rest_bytes = budget_of(capacity_bps, share) - given.get(link, 0)
        if rest_bytes > 0:
            book.taken_over(_UNKNOWN, link, rest_bytes, last_us)
