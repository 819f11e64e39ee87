"""Gives links their leases of free guaranteed rate and keeps account of what agents report to be drawn.

Shared by node over the consumer group of the load reports: a replica leases for the nodes whose loads it gets. Leases
are only given where the agent grants in band.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Gauge

from chart.common import runtime
from chart.common.clock import Clock
from chart.common.database import Pool
from chart.common.streams import Broker
from chart.reservations.decisions import in_band
from chart.reservations.decisions.in_band import Lease, LeaseRule
from chart.reservations.decisions.profile import seconds
from chart.reservations.edges.network_view import NetworkView
from chart.reservations.store import committed, leases
from chart.reservations.store.changes import Changes
from chart.reservations.store.committed import Remembered
from chart.v1 import link_load_pb2

LINK_LOAD = "chart.link-load.v1"
EVERY_S = 0.5
BATCH = 64

LEASED = Gauge("chart_reservations_leased_bits_per_second", "Guaranteed rate leased to links for in-band requests")
OVERDRAWN = Counter("chart_reservations_overdrawn_total", "Reports of a link that drew more than its lease")

_log = structlog.get_logger("chart.reservations")


class LeaseWork:
    """The leases of the links whose loads this replica gets."""

    def __init__(
        self, broker: Broker, pool: Pool, view: NetworkView, rule: LeaseRule, group: str, clock: Clock
    ) -> None:
        """``rule``: what this process was started with; shares that operators set for the platform go before."""
        self._broker = broker
        self._pool = pool
        self._view = view
        self._started = rule
        self._group = group
        self._clock = clock
        # What is drawn on a link, by its newest report, and when that came.
        self._drawn: dict[str, tuple[int, int]] = {}
        self._leases: dict[str, Lease | None] = {}

    @property
    def _rule(self) -> LeaseRule:
        return in_band.rule_of(self._started, self._view.platform)

    async def run(self) -> None:
        """Work until cancelled."""
        while not self._view.in_band_nodes:
            # Reading every load of the network is only worth it when somebody draws.
            await self._clock.sleep(EVERY_S)
        await runtime.run_together(self._take_loads(), self._renew_when_due())

    async def _take_loads(self) -> None:
        async with self._broker.subscribe([LINK_LOAD], group=f"{self._group}-leases", start="latest") as loads:
            async for record in loads:
                if record.value is not None:
                    self.take(cast(link_load_pb2.LinkLoadReport, record.value))

    def take(self, report: link_load_pb2.LinkLoadReport) -> None:
        """Note what is drawn."""
        now_us = self._clock.now_us()
        for load in report.links:
            self._drawn[load.link_id] = (load.in_band_committed_bps, now_us)
            lease = self._leases.get(load.link_id)
            if lease is not None and load.in_band_committed_bps > max([0, *(rate for rate, _ in lease.pieces)]):
                OVERDRAWN.inc()
                _log.warning(
                    "a link draws more in band than its lease",
                    link=load.link_id,
                    drawn_bps=load.in_band_committed_bps,
                    lease_bps=lease.rate_bps,
                )

    async def _renew_when_due(self) -> None:
        while True:
            try:
                await self.renew(self._clock.now_us())
            except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
                _log.warning("leases wait for the database", reason=str(error))
            await self._clock.sleep(EVERY_S)

    async def renew(self, now_us: int) -> None:
        """Renew the leases that are due."""
        nodes = self._view.in_band_nodes
        # A link whose node is silent gets no new lease: nobody would learn of it.
        known = {link_id for link_id, (_, at_us) in self._drawn.items() if now_us - at_us < self._rule.length_us}
        links = [one for one in self._view.network.links.values() if one.from_node in nodes and one.id in known]
        due = [
            one.id
            for one in links
            if one.id not in self._leases or in_band.due(self._leases[one.id], self._drawn[one.id][0], now_us)
        ]
        for begin in range(0, len(due), BATCH):
            await self._renew(due[begin : begin + BATCH], now_us)
        LEASED.set(sum(one.rate_bps for one in self._leases.values() if one is not None))

    async def _renew(self, link_ids: Collection[str], now_us: int) -> None:
        network = self._view.network
        remembered, changes = Remembered(), Changes()
        async with self._pool.connection() as connection, connection.transaction():
            await committed.lock_links(connection, link_ids, (), remembered, changes)
            current = await leases.current(connection, link_ids)
            spans = {
                (one.link_id, *seconds(one.start_us, one.end_us)) for old in current.values() for one in old.commitments
            }
            spans |= self._tried(link_ids, now_us)
            await committed.load_profiles(connection, spans, remembered.ledger)
            for link_id in sorted(link_ids):
                drawn = self._drawn[link_id][0]
                before = current.get(link_id)
                lease = before
                if in_band.due(before, drawn, now_us):
                    lease = in_band.renew(network.links[link_id], remembered.ledger, before, drawn, now_us, self._rule)
                self._leases[link_id] = lease
                if lease is not None and lease is not before:
                    leases.save(changes, lease, drawn)
            for track, changed in committed.take_changes(remembered.ledger).items():
                changes.profile(track, changed)
            async with connection.pipeline():
                await changes.write(connection)

    def _tried(self, link_ids: Collection[str], now_us: int) -> set[committed.Span]:
        """Every interval that a lease may be tried for."""
        tail_us = self._rule.lifetime_us + self._rule.clock_error_us
        length_us = self._rule.length_us
        found = set()
        while length_us >= in_band.SHORTEST_US:
            # Committed from the past on, asked for from now on.
            ends = now_us + length_us + tail_us
            starts = (0, now_us - self._rule.clock_error_us)
            found |= {(link_id, *seconds(start, ends)) for link_id in link_ids for start in starts}
            length_us //= 2
        return found
