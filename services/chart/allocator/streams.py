"""The allocator's streams: link loads, topology, policy and grants in, link rates out.

Loads are shared among replicas by node (consumer group, key: node); everything else is compacted state that every
replica holds. Nothing is committed: a load of the past is of no use, a new member starts with the newest.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from typing import cast

import structlog
from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from chart.allocator.guarantees import GrantBook, LeaseBook
from chart.allocator.loads import LoadReport
from chart.allocator.service import Allocations, NodeAllocation, law_of
from chart.allocator.settings import AllocatorSettings
from chart.allocator.virtual import VirtualLink, is_virtual
from chart.common import runtime
from chart.common.clock import Clock, SystemClock
from chart.common.streams import Broker, CompactedState, StreamError, StreamUnavailable
from chart.v1 import (
    flow_grant_pb2,
    gr_lease_pb2,
    link_load_pb2,
    link_rate_pb2,
    measurement_pb2,
    policy_pb2,
    topology_pb2,
)

LINK_LOAD = "chart.link-load.v1"
LINK_RATE = "chart.link-rate.v1"
FLOW_GRANT = "chart.flow-grant.v1"
GR_LEASE = "chart.gr-lease.v1"
TOPOLOGY = "chart.topology.v1"
POLICY = "chart.policy.v1"
MEASUREMENT = "chart.measurement.v1"

HOUSEKEEPING_S = 1.0
# A control step costs nearly the same for one node as for a hundred; this much of the loop's 50 ms is spent on waiting
# for more of them.
GATHER_S = 0.02

REPORTS = Counter("chart_allocator_load_reports_total", "Load reports taken")
UNKNOWN_LINKS = Gauge("chart_allocator_unknown_links", "Links that agents report and the topology does not have")
PUBLISHED = Counter("chart_allocator_link_rate_records_total", "Records of link rates published")
UNPUBLISHED = Counter("chart_allocator_link_rate_failures_total", "Records of link rates that were not acknowledged")
NODES = Gauge("chart_allocator_nodes", "Nodes that this replica works for")
DECIDE = Histogram(
    "chart_allocator_decide_seconds",
    "Control step of all links of the reports that came together",
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1),
)

_log = structlog.get_logger("chart.allocator")


class _LinkRates(Collector):
    """What links were told, put together when it is asked for: thousands of links change several times a second."""

    def __init__(self) -> None:
        self.allocators: weakref.WeakSet[Allocator] = weakref.WeakSet()

    def collect(self) -> Iterator[Metric]:
        """The rates of all links."""
        available = GaugeMetricFamily(
            "chart_allocator_link_available_bits_per_second", "Fair share R of a link", labels=["link"]
        )
        capacity = GaugeMetricFamily(
            "chart_allocator_link_explicit_capacity_bits_per_second", "C_er of a link", labels=["link"]
        )
        for allocator in self.allocators:
            for allocation in allocator.nodes.values():
                for rate in allocation.published.links if allocation.published is not None else ():
                    available.add_metric([rate.link_id], rate.available_bps)
                    capacity.add_metric([rate.link_id], rate.explicit_rate_capacity_bps)
        yield available
        yield capacity


_link_rates = _LinkRates()
REGISTRY.register(_link_rates)


class Allocator:
    """The running allocator of one replica."""

    def __init__(self, broker: Broker, settings: AllocatorSettings, clock: Clock | None = None) -> None:
        self._broker = broker
        self._settings = settings
        self._clock = clock or SystemClock()
        self._capacities: dict[str, int] = {}
        self._grants = GrantBook()
        self._leases = LeaseBook()
        # Links whose capacity is sensed, by id and by their ends.
        self._virtual: dict[str, VirtualLink] = {}
        self._sensed: dict[tuple[str, str], list[VirtualLink]] = {}
        self._any_virtual = asyncio.Event()
        self._unknown: set[str] = set()
        self._publishing: dict[str, asyncio.Task[None]] = {}
        self._states: dict[str, CompactedState] = {}
        self._laws: list[tuple[str, str]] = []
        # Reports that came since the last control step, by node, oldest first.
        self._waiting: dict[str, list[LoadReport]] = {}
        self._stepping: asyncio.Task[None] | None = None
        self._allocations = Allocations(
            lambda node: law_of(self._laws, node),
            self._newest,
            self._capacities,
            self._grants,
            self._leases.valid,
            lambda what, node, law: _log.info(what, node=node, controller=law),
            self._virtual,
        )
        _link_rates.allocators.add(self)

    @property
    def nodes(self) -> dict[str, NodeAllocation]:
        """Nodes that this replica works for."""
        return self._allocations.nodes

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
        for topic in (TOPOLOGY, POLICY, FLOW_GRANT, GR_LEASE):
            for key, value in self._states[topic].items():
                self._note(topic, key, value)
        _log.info("state is read", links=len(self._capacities), grants=len(self._states[FLOW_GRANT]))
        try:
            await runtime.run_together(
                self._follow(TOPOLOGY),
                self._follow(POLICY),
                self._follow(FLOW_GRANT),
                self._follow(GR_LEASE),
                self._take_loads(),
                self._take_measurements(),
                self._keep_house(),
            )
        finally:
            for task in (*self._publishing.values(), *([self._stepping] if self._stepping else [])):
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
            self._allocations.tell_anew(key)
        elif topic == POLICY:
            policies = self._states[POLICY].items()
            self._laws = [(one, cast(policy_pb2.Policy, policy).link_controller) for one, policy in policies]
            self._allocations.look_again()
        else:
            self._note_topology(key, cast("topology_pb2.TopologyEntity | None", value))

    def _note_topology(self, key: str, entity: topology_pb2.TopologyEntity | None) -> None:
        link = entity.link if entity is not None and entity.WhichOneof("entity") == "link" else None
        capacity_bps = link.capacity_bps if link is not None else 0
        self._note_virtual(key, link)
        if capacity_bps == self._capacities.get(key, 0):
            return
        if capacity_bps:
            self._capacities[key] = capacity_bps
            self._unknown.discard(key)
        else:
            self._capacities.pop(key, None)
        # A link is reported by the node that sends on it.
        self._allocations.look_again(key.split(":", 1)[0])

    def _note_virtual(self, key: str, link: topology_pb2.Link | None) -> None:
        """A link is virtual, or no longer; what was sensed of it stays while its bound and its ends do."""
        before = self._virtual.get(key)
        bound_bps = link.capacity_bps if link is not None and is_virtual(dict(link.tags)) else 0
        ends = (link.from_node, link.to_node) if link is not None else ("", "")
        if before is not None and before.bound_bps == bound_bps and before in self._sensed.get(ends, ()):
            return
        if before is not None:
            del self._virtual[key]
            self._sensed = {
                pair: kept
                for pair, links in self._sensed.items()
                if (kept := [one for one in links if one is not before])
            }
        if bound_bps:
            self._virtual[key] = VirtualLink(bound_bps)
            self._sensed.setdefault(ends, []).append(self._virtual[key])
            _log.info("the capacity of a link is sensed", link=key, bound_bps=bound_bps)
        if self._virtual:
            self._any_virtual.set()
        else:
            self._any_virtual.clear()
        if bound_bps or before is not None:
            self._allocations.look_again(key.split(":", 1)[0])

    async def _take_measurements(self) -> None:
        """What sensors find between the ends of virtual links. Without such links nobody reads the stream."""
        while True:
            await self._any_virtual.wait()
            async with self._broker.subscribe([MEASUREMENT], start="latest") as measurements:
                async for record in measurements:
                    if record.value is not None:
                        self.sense(cast("measurement_pb2.Measurement", record.value))
                    if not self._any_virtual.is_set():
                        break

    def sense(self, measured: measurement_pb2.Measurement) -> None:
        """One measurement; of those that failed, or of other paths and metrics, nothing is kept."""
        if measured.error:
            return
        # A clock that is ahead must not make a reading last.
        at_us = min(measured.measured_at_us, self._clock.now_us())
        for link in self._sensed.get((measured.source_node, measured.destination_node), ()):
            if measured.metric == "available_bandwidth_bps":
                link.note_available(measured.value, measured.probe_bytes, at_us)
            elif measured.metric == "rtt_us":
                link.note_rtt(measured.value, at_us)

    async def _take_loads(self) -> None:
        group = self._settings.allocator_group
        async with self._broker.subscribe([LINK_LOAD], group=group, start="latest") as loads:
            async for first in loads:
                for record in (first, *loads.ready()):
                    if record.value is not None:
                        self.take(cast("LoadReport | link_load_pb2.LinkLoadReport", record.value))

    def take(self, report: LoadReport | link_load_pb2.LinkLoadReport) -> None:
        """One load report. Those that come within 20 ms are taken together with it, in one control step."""
        if not isinstance(report, LoadReport):
            report = LoadReport.of(report)
        node = report.node
        if report.interval_us == 0 or not node:
            return
        if not self._waiting:
            self._stepping = asyncio.create_task(self._step_soon(), name="control step")
        self._waiting.setdefault(node, []).append(report)

    async def _step_soon(self) -> None:
        await self._clock.sleep(GATHER_S)
        self._step()

    def _step(self) -> None:
        """Decide on all reports that wait, and publish what is worth it."""
        waiting, self._waiting = self._waiting, {}
        now_us = self._clock.now_us()
        while waiting:
            # Of a node's reports one after the other: each is a control period.
            reports = [queue.pop(0) for queue in waiting.values()]
            waiting = {node: queue for node, queue in waiting.items() if queue}
            REPORTS.inc(len(reports))
            with DECIDE.time():
                due, unknown = self._allocations.take(reports, now_us)
            for link_id in unknown:
                if link_id not in self._unknown:
                    self._unknown.add(link_id)
                    _log.warning("no rate for a link that is not in the topology", link=link_id)
            free = [node for node in due if node not in self._publishing]
            for record in self._allocations.records(free, now_us, self._settings.link_rate_lease_us):
                task = asyncio.create_task(self._publish(record.node, record), name="publish link rates")
                self._publishing[record.node] = task

    def _newest(self, node: str) -> link_rate_pb2.LinkRates | None:
        return cast("link_rate_pb2.LinkRates | None", self._states[LINK_RATE].get(node))

    async def _publish(self, node: str, record: link_rate_pb2.LinkRates) -> None:
        try:
            await self._broker.publish(LINK_RATE, node, record)
        except StreamError as error:
            # The next report, 100 ms later, tries again with what then holds.
            UNPUBLISHED.inc()
            _log.warning("link rates were not published", node=node, reason=str(error))
        else:
            PUBLISHED.inc()
            self._allocations.published(node, record, self._clock.now_us())
        finally:
            self._publishing.pop(node, None)

    async def _keep_house(self) -> None:
        """Forget nodes whose loads stopped: their leases run out, flows fall back to their default control."""
        told: set[str] = set()
        while True:
            await self._clock.sleep(HOUSEKEEPING_S)
            now_us = self._clock.now_us()
            for node, allocation in list(self.nodes.items()):
                if now_us - allocation.last_report_us > self._settings.node_silence_us:
                    self._allocations.forget(node)
                    _log.warning("no load reports from a node: its link rates are no longer renewed", node=node)
            silent = {link_id.split(":", 1)[0] for link_id in self._capacities} - self.nodes.keys()
            for node in sorted(silent - told):
                _log.info("no rates for the links of a node: it reports no loads to this replica", node=node)
            told = silent
            NODES.set(len(self.nodes))
            UNKNOWN_LINKS.set(len(self._unknown))
