"""The agent of a node: records in, the agent's own decisions (decide.py), a kernel that keeps what it was given until
its leases end, statuses and loads out. What node.c does with sockets and BPF maps is modelled here; what it decides is
its own code.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from chart.common.records import StreamError
from chart.v1 import flow_grant_pb2, grant_status_pb2, link_load_pb2, link_rate_pb2
from chart_lab.simulation.broker import BrokerClient, SimulatedBroker, SimulatedSubscription
from chart_lab.simulation.decide import Decide
from chart_lab.simulation.loop import SimulatedLoop
from chart_lab.simulation.processes import Process

FLOW_GRANT = "chart.flow-grant.v1"
LINK_RATE = "chart.link-rate.v1"
GRANT_STATUS = "chart.grant-status.v1"
LINK_LOAD = "chart.link-load.v1"
TICK_S = 0.4
# An in-band commitment ends this long after its last renewal, and lives for a few of these (signalling).
LIFETIME_S = 3.0
SYNC_LIMIT_S = 5.0


@dataclass
class InForce:
    """What the kernel has of one grant; the leases are counted down by the kernel itself."""

    link_id: str
    # The whole path as the node knows it: what it lets in goes over all of it.
    path: tuple[str, ...]
    sending: bool
    gr_bps: int
    gr_until_s: float
    ar_bps: int
    ar_until_s: float
    sent_bytes: int = 0


@dataclass
class InBand:
    """A guaranteed rate that a flow drew in band on one link."""

    rate_bps: int
    until_s: float


@dataclass
class Kernel:
    """What of a node outlives its agent."""

    loop: SimulatedLoop
    # Told at every instant at which a node may apply more than before.
    changed: Callable[[], None] = lambda: None
    grants: dict[str, InForce] = field(default_factory=dict)
    in_band: dict[str, list[InBand]] = field(default_factory=dict)

    def expire(self) -> None:
        """Drop what has run out."""
        now_s = self.loop.time()
        for request_id, one in list(self.grants.items()):
            if now_s >= one.gr_until_s:
                del self.grants[request_id]
        for flows in self.in_band.values():
            flows[:] = [one for one in flows if one.until_s > now_s]

    def drawn_bps(self, link_id: str) -> int:
        """What flows hold in band on a link."""
        self.expire()
        return sum(one.rate_bps for one in self.in_band.get(link_id, ()))


class Agent:
    """One node's agent; `run` is one life of it."""

    def __init__(self, node: str, links: dict[str, int], broker: SimulatedBroker, numbers: random.Random) -> None:
        """`links`: capacity by id of the links that the node transmits on; faults set it to 0 when one is down."""
        self.node = node
        self.links = links
        self.kernel = Kernel(broker.loop)
        self._broker = broker
        self._numbers = numbers
        self._paths: dict[tuple[str, int], tuple[str, ...]] = {}

    async def run(self, process: Process) -> None:
        """Follow the streams, decide, report."""
        client = self._broker.client(process)
        decide = Decide(self.node)
        dirty = asyncio.Event()
        async with (
            client.subscribe([FLOW_GRANT], start="earliest") as grants,
            client.subscribe([LINK_RATE], start="earliest") as rates,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._follow_grants(grants, decide, process, dirty))
            group.create_task(self._follow_rates(rates, decide, process, dirty))
            try:
                async with asyncio.timeout(SYNC_LIMIT_S):
                    await grants.caught_up.wait()
                    await rates.caught_up.wait()
            except TimeoutError:
                process.trace.note(process.name, "works without having read everything")
            group.create_task(self._act(decide, process, client, dirty))
            group.create_task(self._report(decide, process, client))

    async def _follow_grants(
        self, records: SimulatedSubscription, decide: Decide, process: Process, dirty: asyncio.Event
    ) -> None:
        async for record in records:
            value = cast("flow_grant_pb2.FlowGrant | None", record.value)
            if value is not None:
                self._paths[record.key, value.generation] = tuple(value.link_ids)
            decide.put_grant(record.key, value, process.clock.now_us())
            dirty.set()

    async def _follow_rates(
        self, records: SimulatedSubscription, decide: Decide, process: Process, dirty: asyncio.Event
    ) -> None:
        async for record in records:
            if record.value is not None:
                decide.put_link_rates(cast(link_rate_pb2.LinkRates, record.value), process.clock.now_us())
                dirty.set()

    async def _act(self, decide: Decide, process: Process, client: BrokerClient, dirty: asyncio.Event) -> None:
        while True:
            now_us = process.clock.now_us()
            decide.set_links((link_id, capacity > 0, capacity) for link_id, capacity in self.links.items())
            self._apply(decide, now_us)
            for status in decide.statuses(now_us):
                process.spawn(self._tell(decide, status, client))
            dirty.clear()
            try:
                async with asyncio.timeout(TICK_S):
                    await dirty.wait()
            except TimeoutError:
                continue

    def _apply(self, decide: Decide, now_us: int) -> None:
        """Bring the kernel to what was decided."""
        kernel, now_s = self.kernel, self.kernel.loop.time()
        kernel.expire()
        desired, _ = decide.desired(now_us)
        before, kernel.grants = kernel.grants, {}
        for row in desired:
            old = before.get(row.request_id)
            one = InForce(
                row.link_id,
                self._paths[row.request_id, row.generation],
                row.sending,
                row.gr_bps,
                now_s + (row.valid_until_us - now_us) / 1e6,
                row.ar_bps,
                now_s + max(0, row.ar_valid_until_us - now_us) / 1e6,
                old.sent_bytes if old else 0,
            )
            kernel.grants[row.request_id] = one
            decide.set_result(row.request_id, 0, row.gr_bps + row.ar_bps, one.sent_bytes, now_us)
        kernel.changed()

    async def _tell(self, decide: Decide, status: grant_status_pb2.GrantStatus, client: BrokerClient) -> None:
        try:
            await client.publish(GRANT_STATUS, f"{status.request_id},{self.node}", status)
        except StreamError:
            decide.undelivered(status.request_id)

    async def _report(self, decide: Decide, process: Process, client: BrokerClient) -> None:
        """Loads: every sender uses all of its rate."""
        sequence = 0
        interval_s = 2 * TICK_S
        while True:
            await asyncio.sleep(interval_s)
            self.kernel.expire()
            self._draw(decide, process)
            report = link_load_pb2.LinkLoadReport(
                node=self.node,
                sequence=sequence,
                interval_us=round(interval_s * 1e6),
                interval_end_us=process.clock.now_us(),
            )
            for link_id in self.links:
                held = [one for one in self.kernel.grants.values() if one.link_id == link_id]
                rate_bps = 0
                for one in held:
                    used_bps = one.gr_bps + (one.ar_bps if self.kernel.loop.time() < one.ar_until_s else 0)
                    one.sent_bytes += round(used_bps * interval_s / 8)
                    rate_bps += used_bps
                report.links.add(
                    link_id=link_id,
                    explicit_rate_bytes=round(min(rate_bps, self.links[link_id]) * interval_s / 8),
                    active_flows=len(held),
                    users=len(held),
                    guaranteed_in_use_bps=sum(one.gr_bps for one in held),
                    in_band_committed_bps=self.kernel.drawn_bps(link_id),
                    rtt_us=20_000,
                )
            sequence += 1
            process.spawn(self._publish_load(report, client))

    async def _publish_load(self, report: link_load_pb2.LinkLoadReport, client: BrokerClient) -> None:
        try:
            await client.publish(LINK_LOAD, self.node, report)
        except StreamError:
            return  # a load of the past is of no use

    def _draw(self, decide: Decide, process: Process) -> None:
        """Flows ask in band now and then: what the lease of the link has left, but nothing that would outlast it."""
        now_us, now_s = process.clock.now_us(), self.kernel.loop.time()
        for link_id in self.links:
            lease_bps, until_us = decide.in_band_lease(link_id, now_us)
            if now_us + LIFETIME_S * 1e6 > until_us:
                continue
            flows = self.kernel.in_band.setdefault(link_id, [])
            for one in flows:
                # As an element does it (signal_link_offer): a renewal is lowered to what all others leave of the lease.
                if self._numbers.random() < 0.7:
                    others_bps = self.kernel.drawn_bps(link_id) - one.rate_bps
                    one.rate_bps = min(one.rate_bps, max(0, lease_bps - others_bps))
                    one.until_s = now_s + LIFETIME_S
            free_bps = lease_bps - self.kernel.drawn_bps(link_id)
            if free_bps > 0 and self._numbers.random() < 0.5:
                rate_bps = round(free_bps * self._numbers.uniform(0.3, 1.0))
                flows.append(InBand(rate_bps, now_s + LIFETIME_S))
        self.kernel.changed()
