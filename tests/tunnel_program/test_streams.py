"""The origin on a real broker: its reports, the commands and policies that it takes, leases, a broker that goes away.

Both ends run in the machine's own namespace over loopback; their devices have no addresses and carry nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from chart.v1 import policy_pb2, tunnel_command_pb2, tunnel_report_pb2
from support.kafka import KafkaServer
from support.waiting import until
from tunnel_program.ends import End

pytestmark = pytest.mark.contract
PERIOD_MS = 100


class World:
    """A tunnel and its records."""

    def __init__(self, kafka: KafkaServer, directory: Path, *origin_options: str) -> None:
        self.kafka = kafka
        self.name = f"t{secrets.token_hex(3)}"
        port = 20000 + secrets.randbelow(10000)
        where = f"127.0.0.1:{port}"
        self.destination = End("destination", directory, ["--listen", where, "--tun", f"chd-{self.name}"])
        broker = ["--broker", kafka.bootstrap, "--tunnel", self.name, "--node", f"{self.name}-west"]
        classes = ["--class", "gold=3:dscp=46", "--class", "rest=1:any"]
        names = ["--peer-node", f"{self.name}-east", "--period-ms", str(PERIOD_MS)]
        own = ["--destination", where, "--tun", f"cho-{self.name}", *broker, *classes, *names, *origin_options]
        self.origin = End("origin", directory, own)
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self.generation = time.time_ns()

    def publish(self, topic: str, key: str, message: Any) -> None:
        self.producer.produce(topic, key=key, value=message.SerializeToString())
        assert self.producer.flush(10) == 0

    def command(self, **members: Any) -> None:
        self.generation += 1
        members = {"generation": self.generation, "issued_us": time.time_ns() // 1000} | members
        record = tunnel_command_pb2.TunnelCommand(tunnel=self.name, **members)
        self.publish("chart.tunnel-command.v1", self.name, record)

    def wanted(self) -> int:
        return int(self.origin.get()["connections"]["wanted"])

    def weights(self) -> list[int]:
        return [one["weight"] for one in self.origin.get()["classes"]]


def headers_of(message: Message) -> list[tuple[str, Any]]:
    """The headers of a record."""
    found = message.headers() or {}
    return list(found.items() if isinstance(found, dict) else found)


@pytest.fixture
def world(kafka: KafkaServer, tmp_path: Path) -> Iterator[World]:
    made = World(kafka, tmp_path)
    with made.destination, made.origin:
        until(lambda: made.origin.established() == 1, "a connection")
        until(lambda: made.origin.get()["gauges"]["broker_connected"], "the broker")
        yield made


@pytest.fixture
def reports(world: World) -> Iterator[Callable[[], tuple[tunnel_report_pb2.TunnelReport, dict[str, str]]]]:
    consumer = Consumer(
        {"bootstrap.servers": world.kafka.bootstrap, "group.id": world.name, "enable.auto.commit": False}
    )
    topic = "chart.tunnel-report.v1"
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number) for number in partitions])

    def following() -> tuple[tunnel_report_pb2.TunnelReport, dict[str, str]]:
        deadline_s = time.monotonic() + 10
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is None or message.error() or (message.key() or b"").decode() != world.name:
                continue
            headers = {key: bytes(value or b"").decode() for key, value in headers_of(message)}
            return tunnel_report_pb2.TunnelReport.FromString(message.value() or b""), headers
        raise AssertionError("no report within 10 s")

    yield following
    consumer.close()


def test_a_report_says_how_the_tunnel_is(world: World, reports: Callable[[], Any]) -> None:
    world.command(connections=3, lease_us=60_000_000)
    until(lambda: world.origin.established() == 3, "three connections")
    deadline_s = time.monotonic() + 10
    while True:
        report, headers = reports()
        if len(report.windows) == 3 and report.period_us:
            break
        assert time.monotonic() < deadline_s
    assert headers["type"] == "chart.v1.TunnelReport"
    assert (report.tunnel, report.origin_node) == (world.name, f"{world.name}-west")
    assert report.destination_node == f"{world.name}-east"
    assert report.connections_wanted == report.connections_established == 3
    assert 50_000 <= report.period_us <= 1_000_000
    assert abs(report.period_end_us - time.time_ns() // 1000) < 10_000_000
    assert report.command_generation == world.generation
    assert 0 < report.lease_left_us <= 60_000_000
    assert [(one.name, one.weight) for one in report.classes] == [("gold", 3), ("rest", 1)]
    assert report.windows[0].cwnd_segments >= 1
    assert report.congestion == "cubic"
    assert (report.connections_maximum, report.tls, report.last_error) == (256, False, "")


def test_reports_go_on_when_the_destination_is_gone(world: World, reports: Callable[[], Any]) -> None:
    world.destination.stop()
    deadline_s = time.monotonic() + 10
    while True:
        report, _ = reports()
        if report.period_us == 0 and report.connections_established == 0:
            break
        assert time.monotonic() < deadline_s
    assert report.received_bytes == 0
    assert "refused" in report.last_error or "closed" in report.last_error or "broke" in report.last_error


def test_commands_and_leases(world: World) -> None:
    world.command(connections=5, lease_us=1_000_000)
    until(lambda: world.wanted() == 5, "five connections")
    # The controller is lost: m holds for the lease, then decays; when it is back its commands count again.
    until(lambda: world.origin.get()["connections"]["decaying"], "the end of the lease")
    until(lambda: world.origin.established() == 1, "one connection")
    world.command(connections=4)
    until(lambda: world.origin.established() == 4, "four connections")
    # An older command is ignored; one that was issued longer ago than its lease changes nothing but weights.
    world.command(connections=9, generation=world.generation - 10)
    world.command(connections=9, lease_us=1_000_000, issued_us=time.time_ns() // 1000 - 5_000_000, weights={"gold": 7})
    until(lambda: world.weights() == [7, 1], "gold's weight")
    assert world.wanted() == 4
    assert world.origin.get()["counters"]["commands_ignored"] == 1
    world.command(connections=1000)
    until(lambda: world.wanted() == 256, "as many as there can be")


def test_weights_come_from_policy_until_a_command_names_them(world: World) -> None:
    weighed = policy_pb2.Policy(id="default", customer_weights={"gold": 8, "rest": 2, "nobody": 5})
    world.publish("chart.policy.v1", "default", weighed)
    until(lambda: world.weights() == [8, 2], "the default policy's weights")
    node = f"{world.name}-west"
    world.publish("chart.policy.v1", node, policy_pb2.Policy(id=node, customer_weights={"gold": 20, "rest": 99999}))
    until(lambda: world.weights() == [20, 2], "the node's own policy before it")
    world.command(weights={"rest": 6})
    until(lambda: world.weights() == [20, 6], "the command before both")
    world.publish("chart.policy.v1", "default", policy_pb2.Policy(id="default"))
    world.publish("chart.policy.v1", node, policy_pb2.Policy(id=node))
    until(lambda: world.weights() == [3, 6], "the command line's weight")


def test_what_cannot_be_read_is_counted(world: World) -> None:
    world.producer.produce("chart.tunnel-command.v1", key=world.name, value=b"\xff\xff\xff")
    assert world.producer.flush(10) == 0
    until(lambda: world.origin.get()["counters"]["records_unreadable"] == 1, "the count")
    assert "cannot be read" in world.origin.log.read_text()
