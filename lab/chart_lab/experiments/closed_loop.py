"""The control loop whole, for experiments: a broker and an allocator of the experiment's own, an agent on every node of
a lab, and grants for single flows. Rates come from measured link loads and no rate is set by hand.

Topology, policy and grants are published as registry and reservations would publish them.

One machine is both the network and what controls it. Emulators run at realtime priority and spin before departures; on
a path of three links they would take two cores whole, broker and agents would get none for seconds, and rates would
end. So links here do without spinning and let packets pass in groups, and broker, allocator and agents go before
everything else that is not realtime.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer
from google.protobuf.message import Message

from chart.common import topics
from chart.common.streams import KafkaBroker
from chart.v1 import flow_grant_pb2, grant_status_pb2, link_load_pb2, link_rate_pb2, policy_pb2, topology_pb2
from chart_lab.errors import LabError
from chart_lab.experiments import agents, noise, traffic
from chart_lab.experiments.admission_platform import settings_in
from chart_lab.experiments.traffic import Account
from chart_lab.network import Lab
from chart_lab.platform import kafka, stack
from chart_lab.platform.programs import Program, service_programs
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.supervisor import Supervisor
from chart_lab.topology import Topology, all_ends, first_hops

READY_LIMIT_S = 20.0
GRANT_LIFETIME_S = 300
TCP = 6
# How long a busy link may gather packets: two of them at 100 Mb/s.
COALESCE_US = 200
CONTROL_NICENESS = -10
LINK_LOAD, LINK_RATE, GRANT_STATUS = "chart.link-load.v1", "chart.link-rate.v1", "chart.grant-status.v1"


@dataclass(frozen=True)
class Flow:
    """One bulk flow: from when to when (seconds after the first one could start), and under which control."""

    source: str
    sink: str
    port: int
    control: str = "chart"
    start_s: float = 0.0
    end_s: float = 10.0
    guaranteed_bps: int = 0
    # Whose it is; "": nobody else's.
    user: str = ""


@dataclass(frozen=True)
class LinkSecond:
    """What an agent reported of one link for one interval, times of CLOCK_MONOTONIC."""

    end_ns: int
    interval_s: float
    sent_bytes: int
    legacy_bytes: int
    queue_bytes: int
    dropped_packets: int
    active_flows: int
    users: int = 0


@dataclass
class Watch:
    """What the streams said of one link while the flows ran."""

    link_id: str
    loads: list[LinkSecond] = field(default_factory=list)
    # CLOCK_MONOTONIC ns, R, legacy share
    rates: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class LoopRun:
    """Result of each flow."""

    flows: list[tuple[Flow, Account]]
    watch: Watch
    began_ns: int
    # Why it cannot be judged; None when it can.
    complaint: str | None = None


class ControlPlane:
    """Broker and allocator; one at a time has the management bridge."""

    def __init__(self, settings: PlatformSettings, supervisor: Supervisor, programs: list[Program]) -> None:
        self.settings = settings
        self._supervisor, self._programs = supervisor, programs

    def publish(self, records: Iterable[tuple[str, str, Message | None]]) -> None:
        """Publish (topic, key, value) in order."""

        async def all_of_them() -> None:
            broker = KafkaBroker(self.settings.kafka_bootstrap)
            try:
                for topic, key, value in records:
                    await broker.publish(topic, key, value)
            finally:
                await broker.close()

        asyncio.run(all_of_them())

    def cpu_s(self) -> float:
        """Processor time that broker and allocator have used."""
        ticks = 0
        for one in self._supervisor.status(self._programs):
            with suppress(FileNotFoundError):
                # Behind the name in parentheses come state and eleven numbers, then utime and stime.
                fields = Path(f"/proc/{one.pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def state_policy(self, law: str) -> None:
        """All nodes enforce, under this control law."""
        policy = policy_pb2.Policy(
            id="default",
            revision=time.time_ns(),
            enforcement=policy_pb2.EnforcementMode.ENFORCEMENT_MODE_ENFORCE,
            link_controller=law,
        )
        self.publish([("chart.policy.v1", "default", policy)])

    def state_topology(self, topology: Topology) -> None:
        """Both directions of every link, with the capacity that the emulator has."""
        records: list[tuple[str, str, Message | None]] = []
        for link, end in all_ends(topology):
            parameters = link.direction("forward" if end.node == link.ends[0] else "reverse")
            capacity = parameters.get("rate_bps")
            if not isinstance(capacity, int) or capacity <= 0:
                raise LabError(f"link {link.name} has no rate: a controlled link needs one")
            stated = topology_pb2.Link(id=end.link_id, from_node=end.node, to_node=end.peer, capacity_bps=capacity)
            records.append(("chart.topology.v1", end.link_id, topology_pb2.TopologyEntity(link=stated)))
        self.publish(records)


def light(topology: Topology) -> Topology:
    """The same network with links that leave processor time to those who control it."""
    links = [link.model_copy(update={"spin_us": 0, "coalesce_us": COALESCE_US}) for link in topology.links]
    return topology.model_copy(update={"links": links})


@contextmanager
def _going_first() -> Iterator[None]:
    """What is started inside goes before ordinary processes."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, CONTROL_NICENESS)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """A broker that nodes of a lab reach, and one allocator; gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="chart-loop-"))
    # Its agents run without an authority.
    settings = settings_in(directory, record_authentication="off")
    supervisor = Supervisor(settings.platform_dir)
    stack.ensure_management_bridge(settings.management_address)
    broker = kafka.prepare(settings, with_nodes=True)
    allocator = [one for one in service_programs(settings) if one.name == "allocator"]
    try:
        with _going_first():
            supervisor.launch([broker, *allocator])
        supervisor.start(broker)
        topics.apply(settings.kafka_bootstrap)
        supervisor.start_all(allocator, lambda _: None)
        yield ControlPlane(settings, supervisor, [broker, *allocator])
    finally:
        supervisor.stop([broker, *allocator])
        stack.remove_management_bridge()
        shutil.rmtree(directory, ignore_errors=True)


def path_links(topology: Topology, source: str, sink: str) -> list[str]:
    """Ids of the directed links from one node to another, as the lab's static routes lead."""
    node, found = source, []
    while node != sink:
        end = first_hops(topology, node).get(sink)
        if end is None:
            raise LabError(f"there is no path from {source} to {sink}")
        found.append(end.link_id)
        node = end.peer
    return found


def grant_of(lab: Lab, flow: Flow) -> flow_grant_pb2.FlowGrant:
    """The grant of one flow: the available rate of its path above its guaranteed rate."""
    now_us = time.time_ns() // 1000
    service = flow_grant_pb2.ServiceType
    return flow_grant_pb2.FlowGrant(
        request_id=f"{flow.source}-{flow.sink}-{flow.port}",
        generation=now_us,
        selector=flow_grant_pb2.FlowSelector(
            source_prefix=f"{lab.address(flow.source)}/32",
            destination_prefix=f"{lab.address(flow.sink)}/32",
            protocol=TCP,
            destination_port=flow.port,
        ),
        link_ids=path_links(lab.topology, flow.source, flow.sink),
        service=service.SERVICE_TYPE_VARIABLE if flow.guaranteed_bps else service.SERVICE_TYPE_AVAILABLE,
        guaranteed_bps=flow.guaranteed_bps,
        valid_from_us=now_us - 1_000_000,
        valid_until_us=now_us + GRANT_LIFETIME_S * 1_000_000,
        with_available_rate=True,
        user=flow.user,
    )


class Streams:
    """Follows loads, rates and statuses on a thread of its own."""

    def __init__(self, bootstrap: str, link_id: str) -> None:
        self.watch = Watch(link_id)
        self.rated: set[str] = set()
        self.applied: dict[tuple[str, str], int] = {}
        self._started_us = time.time_ns() // 1000
        self._monotonic = time.monotonic_ns() - time.time_ns()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"closed-loop-{secrets.token_hex(4)}",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "log_level": 3,
            }
        )
        self._consumer.subscribe([LINK_LOAD, LINK_RATE, GRANT_STATUS])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.1):
                value, topic = message.value(), message.topic()
                if message.error() is None and value and topic:
                    self._take(topic, value)
        self._consumer.close()

    def _take(self, topic: str, value: bytes) -> None:
        if topic == LINK_LOAD:
            self._take_load(link_load_pb2.LinkLoadReport.FromString(value))
        elif topic == LINK_RATE:
            rates = link_rate_pb2.LinkRates.FromString(value)
            if rates.issued_at_us < self._started_us:
                return
            for rate in rates.links:
                self.rated.add(rate.link_id)
                if rate.link_id == self.watch.link_id:
                    at_ns = rates.issued_at_us * 1000 + self._monotonic
                    self.watch.rates.append((at_ns, rate.available_bps, rate.legacy_share_bps))
        else:
            status = grant_status_pb2.GrantStatus.FromString(value)
            if status.state == grant_status_pb2.GrantState.GRANT_STATE_APPLIED:
                self.applied[status.request_id, status.node] = status.generation

    def _take_load(self, report: link_load_pb2.LinkLoadReport) -> None:
        if report.interval_end_us < self._started_us:
            return
        for load in report.links:
            if load.link_id == self.watch.link_id:
                self.watch.loads.append(
                    LinkSecond(
                        end_ns=report.interval_end_us * 1000 + self._monotonic,
                        interval_s=report.interval_us / 1e6,
                        sent_bytes=load.sent_bytes,
                        legacy_bytes=load.legacy_bytes,
                        queue_bytes=load.queue_bytes,
                        dropped_packets=load.dropped_packets,
                        active_flows=load.active_flows,
                        users=load.users,
                    )
                )

    def close(self) -> None:
        """Stop following; what was said stays."""
        self._stop.set()
        self._thread.join(timeout=10)


@contextmanager
def _agents(lab: Lab, bootstrap: str) -> Iterator[None]:
    """chart-agent on every node, with rates from the streams."""
    more = ["--bootstrap", bootstrap]
    with ExitStack() as stack:
        with _going_first():
            stack.enter_context(agents.running(lab, {node.name: more for node in lab.topology.nodes}))
        yield


def await_all(what: str, ready: Callable[[], bool]) -> None:
    """Ask again until it is so. Raises LabError after READY_LIMIT_S."""
    deadline = time.monotonic() + READY_LIMIT_S
    while not ready():
        if time.monotonic() > deadline:
            raise LabError(f"after {READY_LIMIT_S:g} s still not: {what}")
        time.sleep(0.05)


def run_flows(plane: ControlPlane, topology: Topology, flows: Sequence[Flow], bottleneck: str, seed: int) -> LoopRun:
    """A lab of its own, agents, grants for the flows under `chart`, and the flows in their time.

    Raises LabError when the loop does not come up or a flow fails.
    """
    directory = Path(tempfile.mkdtemp(prefix="chart-lab-"))
    topology = light(topology)
    plane.state_topology(topology)
    bootstrap = plane.settings.node_bootstrap
    explicit = [flow for flow in flows if flow.control == "chart"]
    try:
        with (
            Lab(topology, f"x{secrets.token_hex(3)}", state_dir=directory, seed=seed, management=True) as lab,
            _agents(lab, bootstrap),
        ):
            streams = Streams(plane.settings.kafka_bootstrap, bottleneck)
            grants = [grant_of(lab, flow) for flow in explicit]
            try:
                wanted = {link_id for grant in grants for link_id in grant.link_ids} or {bottleneck}
                await_all(f"rates of {', '.join(sorted(wanted))}", lambda: wanted <= streams.rated)
                plane.publish([("chart.flow-grant.v1", grant.request_id, grant) for grant in grants])
                needed = {(g.request_id, id.split(":", 1)[0]): g.generation for g in grants for id in g.link_ids}
                await_all(
                    "grants applied by every node of their paths", lambda: needed.items() <= streams.applied.items()
                )
                link = between(topology, bottleneck)
                lab.reset_ground_truth(link)
                before = noise.cpu_times(lab, plane.cpu_s())
                began_ns, accounts = transfers(lab, flows)
                disturbed = noise.judge(before, noise.cpu_times(lab, plane.cpu_s()), lab.ground_truth(link))
            finally:
                streams.close()
                plane.publish([("chart.flow-grant.v1", grant.request_id, None) for grant in grants])
        found = list(zip(flows, accounts, strict=True))
        complaint = disturbed.complaint()
        if complaint is None:
            demand_held(found)
        return LoopRun(found, streams.watch, began_ns, complaint)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def between(topology: Topology, link_id: str) -> str:
    """Name of the link that a directed one is a direction of."""
    return next(link.name for link, end in all_ends(topology) if end.link_id == link_id)


def demand_held(flows: Iterable[tuple[Flow, Account]]) -> None:
    """Raises LabError when a flow that was to have a rate did not keep it to the end."""
    for flow, account in flows:
        if flow.control == "chart" and account.congestion != agents.FLOW_CONTROL:
            raise LabError(f"port {flow.port} ended under {account.congestion}: chart-agent did not hold it at a rate")


def transfers(lab: Lab, flows: Sequence[Flow], *, in_band: bool = False) -> tuple[int, list[Account]]:
    """Start each flow at its time; when the first could start (CLOCK_MONOTONIC, ns), and their accounts in the order of
    `flows`. `in_band`: the programs of those under `chart` ask for their rates themselves.
    """
    running: dict[int, traffic.Transfer] = {}
    began = time.monotonic()
    try:
        for index in sorted(range(len(flows)), key=lambda one: flows[one].start_s):
            flow = flows[index]
            time.sleep(max(0.0, began + flow.start_s - time.monotonic()))
            running[index] = traffic.Transfer(
                lab,
                flow.source,
                flow.sink,
                duration_s=flow.end_s - flow.start_s,
                congestion=None if flow.control == "chart" else flow.control,
                port=flow.port,
                in_band=in_band and flow.control == "chart",
            )
        accounts = [running[index].finish() for index in range(len(flows))]
    finally:
        for transfer in running.values():
            transfer.close()
    return round(began * 1e9), accounts


def rate_bps(account: Account, start_ns: int, end_ns: int) -> float:
    """Payload bits per second between two times of CLOCK_MONOTONIC."""
    start_s, end_s = (max(0.0, (at - account.syn_ns) / 1e9) for at in (start_ns, end_ns))
    received = account.bytes_until(end_s) - account.bytes_until(start_s)
    return received * 8e9 / (end_ns - start_ns)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 when there are none."""
    return statistics.fmean(values) if values else 0.0


__all__ = [
    "ControlPlane",
    "Flow",
    "LoopRun",
    "Streams",
    "Watch",
    "await_all",
    "control_plane",
    "mean",
    "rate_bps",
    "run_flows",
]
