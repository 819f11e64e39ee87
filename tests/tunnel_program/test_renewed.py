"""The origin goes on at the broker with the renewed certificate of its node, also when the former one has ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chart.v1 import tunnel_command_pb2
from support import protected_kafka as protected
from support.protected_kafka import ProtectedKafka
from support.waiting import until
from tunnel_program.ends import End

pytestmark = pytest.mark.contract
TUNNEL, NODE = "renewed", "renewed-west"
# Long enough to start and to renew, short enough to wait for.
SHORT_LIFE_S = 15


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[ProtectedKafka]:
    """A broker that this test starts anew."""
    with protected.running(tmp_path) as made:
        made.give(NODE)
        yield made


@pytest.fixture
def origin(own_kafka: ProtectedKafka, tmp_path: Path) -> Iterator[End]:
    where = f"127.0.0.1:{20000 + secrets.randbelow(10000)}"
    suffix = secrets.token_hex(3)
    protected.issue(own_kafka.folder, own_kafka.authority, f"node/{NODE}", SHORT_LIFE_S)
    own = ["--destination", where, "--tun", f"cho-{suffix}", "--broker", own_kafka.server.bootstrap]
    with (
        protected.environment(own_kafka, f"node/{NODE}"),
        End("destination", tmp_path, ["--listen", where, "--tun", f"chd-{suffix}"]),
        End("origin", tmp_path, [*own, "--tunnel", TUNNEL, "--node", NODE, "--period-ms", "100"]) as started,
    ):
        yield started


def counter(origin: End, name: str) -> int:
    return int(origin.get()["counters"][name])


def command(cluster: ProtectedKafka, generation: int) -> None:
    """As the service of the tunnels gives it."""
    producer = Producer(cluster.client("service/tunnels"))
    record = tunnel_command_pb2.TunnelCommand(
        tunnel=TUNNEL, generation=generation, issued_us=time.time_ns() // 1000, connections=2, lease_us=60_000_000
    )
    producer.produce("chart.tunnel-command.v1", key=TUNNEL, value=record.SerializeToString())
    assert producer.flush(10) == 0


@pytest.mark.timeout(300)
def test_reports_and_commands_go_on_after_the_former_certificate_has_ended(
    own_kafka: ProtectedKafka, origin: End
) -> None:
    until_s = time.monotonic() + SHORT_LIFE_S
    until(lambda: counter(origin, "reports_delivered") > 0, "a report", 20)
    command(own_kafka, 1)
    until(lambda: counter(origin, "commands_taken") == 1, "a command", 20)
    protected.issue(own_kafka.folder, own_kafka.authority, f"node/{NODE}")
    until(lambda: "the broker is spoken to anew" in origin.log.read_text(), "other clients", 10)
    until(lambda: time.monotonic() > until_s + 1, "the end of the former certificate", SHORT_LIFE_S + 5)
    # Every connection is made anew, and the former certificate would be refused.
    own_kafka.server.stop()
    own_kafka.server.start()
    before = counter(origin, "reports_delivered")
    until(lambda: counter(origin, "reports_delivered") > before + 5, "reports", 30)
    command(own_kafka, 2)
    until(lambda: counter(origin, "commands_taken") == 2, "the next command", 30)
    # Nothing was read twice.
    assert counter(origin, "commands_ignored") == 0
    assert counter(origin, "records_read") == 2
