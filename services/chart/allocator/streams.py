"""The allocator's streams: link loads, topology, policy and grants in, link rates out.

Loads are shared among replicas by node (consumer group, key: node); everything else is compacted state that every
replica holds. Nothing is committed: a load of the past is of no use, a new member starts with the newest.
"""

from __future__ import annotations

import asyncio
from typing import cast

import structlog
from prometheus_client import Counter, Gauge, Histogram

from chart.allocator.service import GrantBook, LeaseBook, NodeAllocation, law_of
from chart.allocator.settings import AllocatorSettings
from chart.common import runtime
from chart.common.clock import Clock, SystemClock
from chart.common.streams import Broker, CompactedState, StreamError, StreamUnavailable
from chart.v1 import flow_grant_pb2, gr_lease_pb2, link_load_pb2, link_rate_pb2, policy_pb2, topology_pb2

LINK_LOAD = "chart.link-load.v1"
LINK_RATE = "chart.link-rate.v1"
FLOW_GRANT = "chart.flow-grant.v1"
GR_LEASE = "chart.gr-lease.v1"
TOPOLOGY = "chart.topology.v1"
POLICY = "chart.policy.v1"

HOUSEKEEPING_S = 1.0

REPORTS = Counter("chart_allocator_load_reports_total", "Load reports taken")
UNKNOWN_LINKS = Gauge("chart_allocator_unknown_links", "Links that agents report and the topology does not have")
PUBLISHED = Counter("chart_allocator_link_rate_records_total", "Records of link rates published")
UNPUBLISHED = Counter("chart_allocator_link_rate_failures_total", "Records of link rates that were not acknowledged")
NODES = Gauge("chart_allocator_nodes", "Nodes that this replica works for")
DECIDE = Histogram(
    "chart_allocator_decide_seconds",
    "Control step of all links of one report",
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1),
)
AVAILABLE = Gauge("chart_allocator_link_available_bits_per_second", "Common rate R of a link", ["link"])
CAPACITY = Gauge("chart_allocator_link_explicit_capacity_bits_per_second", "C_er of a link", ["link"])

_log = structlog.get_logger("chart.allocator")


class Allocator:
    """The running allocator of one replica."""

    def __init__(self, broker: Broker, settings: AllocatorSettings, clock: Clock | None = None) -> None:
        self._broker = broker
        self._settings = settings
        self._clock = clock or SystemClock()
        self._capacities: dict[str, int] = {}
        self._grants = GrantBook()
        self._leases = LeaseBook()
        self._unknown: set[str] = set()
        self._publishing: dict[str, asyncio.Task[None]] = {}
        self.nodes: dict[str, NodeAllocation] = {}
        self._states: dict[str, CompactedState] = {}

    @property
    def ready(self) -> bool:
        """Whether every state that decisions need is held."""
        return len(self._states) == 5 and all(state.ready for state in self._states.values())

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            StreamUnavailable: a state could not be read at the start; the supervisor tries again.
        """
        for topic in (TOPOLOGY, POLICY, FLOW_GRANT, GR_LEASE, LINK_RATE):
            self._states[topic] = await self._broker.compacted(topic)
        for topic in (TOPOLOGY, FLOW_GRANT, GR_LEASE):
            for key, value in self._states[topic].items():
                self._note(topic, key, value)
        _log.info("state is read", links=len(self._capacities), grants=len(self._states[FLOW_GRANT]))
        try:
            await runtime.run_together(
                self._follow(TOPOLOGY),
                self._follow(FLOW_GRANT),
                self._follow(GR_LEASE),
                self._take_loads(),
                self._keep_house(),
            )
        finally:
            for task in self._publishing.values():
                task.cancel()

    async def _follow(self, topic: str) -> None:
        async for key, value in self._states[topic].subscribe_changes(with_current=True):
            self._note(topic, key, value)
        # The state ended under us: without it every decision would be about the past. The supervisor starts us anew.
        msg = f"the state of {topic} is no longer followed"
        raise StreamUnavailable(msg)

    def _note(self, topic: str, key: str, value: object) -> None:
        if topic == FLOW_GRANT:
            self._grants.put(key, cast("flow_grant_pb2.FlowGrant | None", value))
        elif topic == GR_LEASE:
            self._leases.put(key, cast("gr_lease_pb2.GrLease | None", value))
        elif value is None:
            self._capacities.pop(key, None)
        else:
            entity = cast(topology_pb2.TopologyEntity, value)
            if entity.WhichOneof("entity") == "link":
                self._capacities[key] = entity.link.capacity_bps
                self._unknown.discard(key)

    async def _take_loads(self) -> None:
        group = self._settings.allocator_group
        async with self._broker.subscribe([LINK_LOAD], group=group, start="latest") as loads:
            async for record in loads:
                if record.value is not None:
                    self.take(cast(link_load_pb2.LinkLoadReport, record.value))

    def take(self, report: link_load_pb2.LinkLoadReport) -> None:
        """One load report: decide, and publish when it is worth it."""
        if report.interval_us == 0 or not report.node:
            return
        REPORTS.inc()
        now_us = self._clock.now_us()
        allocation = self._allocation(report.node)
        with DECIDE.time():
            unknown = allocation.take(
                report, self._capacities, lambda link_id: self._grants.reserved_bps(link_id, now_us), now_us
            )
        allocation.leases = {link_id: self._leases.valid(link_id, now_us) for link_id in allocation.decisions}
        for link_id in unknown:
            if link_id not in self._unknown:
                self._unknown.add(link_id)
                _log.warning("no rate for a link that is not in the topology", link=link_id, node=report.node)
        if report.node not in self._publishing and allocation.due(now_us):
            self._publishing[report.node] = asyncio.create_task(self._publish(allocation), name="publish link rates")

    def _allocation(self, node: str) -> NodeAllocation:
        policies = [(key, cast(policy_pb2.Policy, one).link_controller) for key, one in self._states[POLICY].items()]
        law = law_of(policies, node)
        allocation = self.nodes.get(node)
        if allocation is None:
            allocation = NodeAllocation(node, law, self._newest(node))
            self.nodes[node] = allocation
            NODES.set(len(self.nodes))
            _log.info("works for a node: its loads arrive", node=node, controller=law)
        elif allocation.law != law:
            _log.info("changes the control law of a node by policy", node=node, controller=law)
            allocation.use_law(law)
        return allocation

    def _newest(self, node: str) -> link_rate_pb2.LinkRates | None:
        return cast("link_rate_pb2.LinkRates | None", self._states[LINK_RATE].get(node))

    async def _publish(self, allocation: NodeAllocation) -> None:
        newest = self._newest(allocation.node)
        record = allocation.record(
            self._clock.now_us(), self._settings.link_rate_lease_us, newest.generation if newest else 0
        )
        try:
            await self._broker.publish(LINK_RATE, allocation.node, record)
        except StreamError as error:
            # The next report, 100 ms later, tries again with what then holds.
            UNPUBLISHED.inc()
            _log.warning("link rates were not published", node=allocation.node, reason=str(error))
        else:
            PUBLISHED.inc()
            allocation.published = record
            for rate in record.links:
                AVAILABLE.labels(link=rate.link_id).set(rate.available_bps)
                CAPACITY.labels(link=rate.link_id).set(rate.explicit_rate_capacity_bps)
        finally:
            self._publishing.pop(allocation.node, None)

    async def _keep_house(self) -> None:
        """Forget nodes whose loads stopped: their leases run out, flows fall back to their default control."""
        told: set[str] = set()
        while True:
            await self._clock.sleep(HOUSEKEEPING_S)
            now_us = self._clock.now_us()
            for node, allocation in list(self.nodes.items()):
                if now_us - allocation.last_report_us > self._settings.node_silence_us:
                    del self.nodes[node]
                    _log.warning("no load reports from a node: its link rates are no longer renewed", node=node)
            silent = {link_id.split(":", 1)[0] for link_id in self._capacities} - self.nodes.keys()
            for node in sorted(silent - told):
                _log.info("no rates for the links of a node: it reports no loads to this replica", node=node)
            told = silent
            NODES.set(len(self.nodes))
            UNKNOWN_LINKS.set(len(self._unknown))
