"""`rate-control-load`: what link rate control costs: 1,000 nodes with ten links each report ten times a second to one
replica of the allocator over a real broker; its share of one core, all threads of the process counted.

The flows of the links keep to the rates that they are told, so records go out as often as they would: flows come and
go all the time, half of them are limited elsewhere, and counters are noisy.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from confluent_kafka import Consumer, Producer

from chart.common import topics
from chart.v1 import link_load_pb2, link_rate_pb2, topology_pb2
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.platform import kafka
from chart_lab.platform.programs import Program
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.supervisor import Supervisor

NODES = 1000
LINKS_OF_NODE = 10
PERIOD_S = 0.1
WARM_UP_S = 15.0
DURATION_S = 30.0
CAPACITY_BPS = 1_000_000_000
RTT_US = 20_000
# Of all links, per second: a flow comes or goes.
CHANGING_SHARE = 0.02
NOISE = 0.002
GOAL = 0.5
# Fewer reports than this share of what was to be sent: the figure would be of a lighter load.
LEAST_REPORTS = 0.98
REPORTS = re.compile(r"^chart_allocator_load_reports_total (\S+)$", re.MULTILINE)
RECORDS = re.compile(r"^chart_allocator_link_rate_records_total (\S+)$", re.MULTILINE)


def name_of(node: int) -> str:
    """Id of a node; all of them are of one length."""
    return f"load{node:04}"


def link_of(node: int, index: int) -> str:
    """Id of a node's link."""
    return f"{name_of(node)}:to-{index}"


def padded(values: Any, size: int) -> Any:
    """Whole numbers as varints of protobuf that are all of one size: valid, though longer than they need be."""
    found = (np.asarray(values, np.int64)[..., None] >> (7 * np.arange(size))) & 0x7F
    found[..., :-1] |= 0x80
    return found.astype(np.uint8)


class Reports:
    """The load reports of all nodes as one table of bytes, a row for each: only numbers differ between two periods.

    A thousand agents make their own reports; made one by one here they would cost more than what is measured.
    """

    SENT, END, INTERVAL = 5, 8, 4

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        rows = []
        for node in range(nodes):
            blank = link_load_pb2.LinkLoadReport(node=name_of(node)).SerializeToString()
            # Fields 3 and 4 of a report, 2, 3, 10 and 13 of a link's load: all but the last as numbers to be filled in.
            row = blank + b"\x18" + bytes(self.END) + b"\x20" + bytes(self.INTERVAL)
            for index in range(LINKS_OF_NODE):
                named = link_load_pb2.LinkLoad(link_id=link_of(node, index)).SerializeToString()
                numbers = b"\x10" + bytes(self.SENT) + b"\x18" + bytes(self.SENT) + b"\x50\x00"
                rtt = b"\x68" + padded(RTT_US, 3).tobytes()
                row += b"\x2a" + bytes([len(named) + len(numbers) + len(rtt)]) + named + numbers + rtt
            rows.append(np.frombuffer(row, np.uint8))
        self._table = np.stack(rows)
        self._end = len(blank) + 1
        self._interval = self._end + self.END + 1
        first = self._interval + self.INTERVAL
        length = (self._table.shape[1] - first) // LINKS_OF_NODE
        self._sent = [first + index * length + 2 + len(named) + 1 for index in range(LINKS_OF_NODE)]

    def of(self, sent_bytes: Any, flows: Any, interval_us: int, now_us: int) -> Iterator[tuple[str, bytes]]:
        """Key and payload of each node; `sent_bytes` and `flows` by link, node after node."""
        table, size = self._table, self.SENT
        table[:, self._end : self._end + self.END] = padded(now_us, self.END)
        table[:, self._interval : self._interval + self.INTERVAL] = padded(interval_us, self.INTERVAL)
        sent = padded(np.reshape(sent_bytes, (self._nodes, LINKS_OF_NODE)), size)
        counted = np.reshape(flows, (self._nodes, LINKS_OF_NODE))
        for index, at in enumerate(self._sent):
            table[:, at : at + size] = sent[:, index]
            table[:, at + size + 1 : at + 2 * size + 1] = sent[:, index]
            table[:, at + 2 * size + 2] = counted[:, index]
        octets, length = table.tobytes(), table.shape[1]
        for node in range(self._nodes):
            yield name_of(node), octets[node * length : (node + 1) * length]


@dataclass
class Crowd:
    """All flows of all links; arrays over links."""

    nodes: int
    numbers: np.random.Generator
    flows: Any = field(init=False)
    rate_bps: Any = field(init=False)

    def __post_init__(self) -> None:
        links = self.nodes * LINKS_OF_NODE
        self._reports = Reports(self.nodes)
        self.flows = self.numbers.integers(1, 6, links)
        self.rate_bps = np.full(links, CAPACITY_BPS / 10.0)

    def tell(self, record: link_rate_pb2.LinkRates) -> None:
        """A node learns its rates."""
        first = int(record.node.removeprefix("load")) * LINKS_OF_NODE
        for rate in record.links:
            self.rate_bps[first + int(rate.link_id.rsplit("-", 1)[1])] = rate.available_bps

    def reports(self, elapsed_s: float) -> Iterator[tuple[str, bytes]]:
        """What every node reports of one period."""
        change = self.numbers.random(len(self.flows)) < CHANGING_SHARE * elapsed_s
        step = self.numbers.choice((-1, 1), len(self.flows))
        self.flows = np.where(change, np.clip(self.flows + step, 1, 8), self.flows)
        limited = self.flows // 2
        limit_bps = 0.3 * CAPACITY_BPS / self.flows
        sent_bps = (self.flows - limited) * self.rate_bps + limited * np.minimum(limit_bps, self.rate_bps)
        sent_bps = np.minimum(sent_bps, CAPACITY_BPS) * self.numbers.normal(1.0, NOISE, len(self.flows))
        sent = (sent_bps * elapsed_s / 8).astype(np.int64)
        yield from self._reports.of(sent, self.flows, round(elapsed_s * 1e6), time.time_ns() // 1000)


def run(settings: Settings, report: Report) -> Outcome:
    """Start a broker and one replica, load it, measure."""
    duration_s = settings.duration_s or DURATION_S
    directory = Path(tempfile.mkdtemp(prefix="chart-rate-control-"))
    try:
        with _platform(directory) as (bootstrap, http_port, pid):
            measured = _measure(bootstrap, http_port, pid, settings.seed, duration_s, report)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures = [Figure("core_share", round(measured["core_share"], 4), "cores", f"<= {GOAL}")]
    table = (
        "| links | reports/s | records/s | share of one core |\n|---|---|---|---|\n"
        f"| {NODES * LINKS_OF_NODE} | {measured['reports_per_s']:.0f} | {measured['records_per_s']:.0f} |"
        f" {measured['core_share']:.3f} |\n"
    )
    return Outcome(figures, table, measured)


def _measure(
    bootstrap: str, http_port: int, pid: int, seed: int, duration_s: float, report: Report
) -> dict[str, float]:
    crowd = Crowd(NODES, np.random.default_rng(seed))
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4", "acks": 1, "log_level": 3}
    )
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "rate-control-load", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["chart.link-rate.v1"])
    began = last = time.monotonic()
    counted: tuple[float, float, float, float] | None = None
    tick = 0
    try:
        while (now := time.monotonic()) < began + WARM_UP_S + duration_s:
            if counted is None and now >= began + WARM_UP_S:
                counted = (now, _cpu_s(pid), *_counters(http_port))
            for message in consumer.consume(5000, 0):
                payload = message.value()
                if message.error() is None and payload:
                    crowd.tell(link_rate_pb2.LinkRates.FromString(payload))
            now = time.monotonic()
            for node, load in crowd.reports(now - last):
                producer.produce("chart.link-load.v1", key=node, value=load)
            producer.poll(0)
            last = now
            tick += 1
            report("load", min(1.0, (now - began) / (WARM_UP_S + duration_s)))
            time.sleep(max(0.0, began + tick * PERIOD_S - time.monotonic()))
        assert counted is not None
        started, cpu_s, reports, records = counted
        # Before counting: what was sent last has to be taken first.
        producer.flush(5)
        wall_s = time.monotonic() - started
        cpu_s = _cpu_s(pid) - cpu_s
        reports_now, records_now = _counters(http_port)
    finally:
        consumer.close()
    found = {
        "core_share": cpu_s / wall_s,
        "reports_per_s": (reports_now - reports) / wall_s,
        "records_per_s": (records_now - records) / wall_s,
        "microseconds_per_report": 1e6 * cpu_s / max(1.0, reports_now - reports),
    }
    if found["reports_per_s"] < LEAST_REPORTS * NODES / PERIOD_S:
        msg = (
            f"only {found['reports_per_s']:.0f} of {NODES / PERIOD_S:.0f} reports a second were sent and taken, at"
            f" {found['core_share']:.2f} of a core: the machine is too busy for this figure"
        )
        raise LabError(msg)
    return found


def _cpu_s(pid: int) -> float:
    """Processor time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _counters(http_port: int) -> tuple[float, float]:
    """Reports taken and records published so far."""
    text = httpx.get(f"http://127.0.0.1:{http_port}/metrics", timeout=5).text
    reports, records = REPORTS.search(text), RECORDS.search(text)
    if reports is None or records is None:
        raise LabError("the allocator does not count its reports and records")
    return float(reports[1]), float(records[1])


@contextmanager
def _platform(directory: Path) -> Iterator[tuple[str, int, int]]:
    """A broker and one allocator under a process manager of their own: bootstrap, HTTP port and pid."""
    broker_port, node_port, controller_port, grpc_port, http_port = _free_ports(5)
    settings = PlatformSettings(
        state_dir=directory, kafka_port=broker_port, kafka_node_port=node_port, kafka_controller_port=controller_port
    )
    broker = kafka.prepare(settings, with_nodes=False)
    environment = {
        "CHART_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "CHART_STATE_DIR": str(directory / "allocator"),
        "CHART_GRPC_LISTEN": f"127.0.0.1:{grpc_port}",
        "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
        "CHART_LOG_LEVEL": "warning",
    }
    allocator = Program(
        "allocator",
        (sys.executable, "-m", "chart.allocator.main"),
        1,
        f"http://127.0.0.1:{http_port}/readyz",
        environment,
    )
    supervisor = Supervisor(directory, "chart-rate-control")
    programs = [broker, allocator]
    try:
        supervisor.launch(programs)
        supervisor.start(broker)
        topics.apply(settings.kafka_bootstrap)
        _state_network(settings.kafka_bootstrap)
        supervisor.start(allocator)
        (pid,) = [row.pid for row in supervisor.status(programs) if row.name == "allocator"]
        yield settings.kafka_bootstrap, http_port, pid
    finally:
        supervisor.stop(programs)


def _state_network(bootstrap: str) -> None:
    """The links, as the registry would state them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 3})
    for node in range(NODES):
        for index in range(LINKS_OF_NODE):
            link = topology_pb2.Link(
                id=link_of(node, index),
                from_node=name_of(node),
                to_node=name_of((node + index + 1) % NODES),
                capacity_bps=CAPACITY_BPS,
            )
            payload = topology_pb2.TopologyEntity(link=link).SerializeToString()
            producer.produce("chart.topology.v1", key=link.id, value=payload)
            producer.poll(0)
    if producer.flush(30):
        raise LabError("the broker does not take the links of the network")


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


EXPERIMENT = Experiment(
    "rate-control-load", "link rate control of 10,000 links by one replica, and its share of one core", run
)
