"""The policer of an agent at the edge of a domain: what comes in is held to its grant, and premium marks are earned."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from chart_lab.network import Lab
from support.agent import PORT, Node
from support.waiting import until

pytestmark = pytest.mark.lab

RATE_BPS = 8_000_000
SENT_BPS = 24_000_000
SECONDS = 2.0
DEPTH_MS = 20
PAYLOAD_BYTES, HEADER_BYTES = 1200, 28
EXPEDITED = 46

SOURCE = f"""
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[3]) << 2)
block, gap_s = bytes({PAYLOAD_BYTES}), {(PAYLOAD_BYTES + HEADER_BYTES) * 8 / SENT_BPS}
began, count = time.monotonic(), 0
while time.monotonic() < began + {SECONDS}:
    sender.sendto(block, (sys.argv[1], int(sys.argv[2])))
    count += 1
    time.sleep(max(0, began + count * gap_s - time.monotonic()))
print(count)
"""


class Edge:
    """bravo, whose link to alpha is the edge of its domain."""

    def __init__(self, lab: Lab, *options: str) -> None:
        self.lab, self.agent = lab, Node(lab, "bravo")
        self.agent.rates.write_text(
            json.dumps(
                {
                    "enforcement": "enforce",
                    "grants": [
                        {
                            "request_id": "from-alpha",
                            "selector": {"protocol": "udp", "destination_port": PORT},
                            "guaranteed_bps": RATE_BPS,
                        }
                    ],
                }
            )
        )
        self.agent.start("--edge-depth-ms", str(DEPTH_MS), *options)
        until(lambda: self.agent.status()["grants"], "the grant is in the kernel")

    def send(self, port: int, dscp: int = 0) -> tuple[int, float]:
        """Datagrams that alpha sent, and how long it took (seconds)."""
        begun = time.monotonic()
        command = ["/usr/bin/python3", "-c", SOURCE, self.lab.address("bravo"), str(port), str(dscp)]
        sent = int(self.lab.exec("alpha", command, timeout_s=60).stdout)
        return sent, time.monotonic() - begun

    def counts(self) -> dict[str, int]:
        (edge,) = self.agent.status()["edges"]
        return {name: value for name, value in edge.items() if isinstance(value, int)}


@pytest.fixture
def dropping(lab: Lab) -> Iterator[Edge]:
    edge = Edge(lab, "--edge", "to-alpha", "--edge-exceed", "drop")
    yield edge
    edge.agent.stop()


def received(lab: Lab) -> int:
    """Datagrams that came to bravo's UDP, whether somebody listens or not."""
    told = lab.exec("bravo", ["nstat", "-asz", "UdpInDatagrams", "UdpNoPorts"]).stdout
    return sum(int(line.split()[1]) for line in told.splitlines() if line.startswith("Udp"))


def test_what_is_above_a_grant_is_dropped(lab: Lab, dropping: Edge) -> None:
    before = received(lab)
    sent, took_s = dropping.send(PORT)
    counts = dropping.counts()
    passed = counts["conforming_packets"]
    # The bucket's depth, then the rate; of what was sent 1 % is lost on the way.
    least = 0.9 * RATE_BPS * SECONDS / 8 / (PAYLOAD_BYTES + HEADER_BYTES)
    most = RATE_BPS * (took_s + DEPTH_MS / 1e3) / 8 / (PAYLOAD_BYTES + HEADER_BYTES) + 2
    assert least <= passed <= most
    assert 0.95 * sent <= passed + counts["exceeding_packets"] <= sent
    assert received(lab) - before == passed


def test_what_has_no_grant_passes_without_its_premium_mark(lab: Lab, dropping: Edge) -> None:
    before = received(lab)
    sent, _ = dropping.send(PORT + 1, EXPEDITED)
    counts = dropping.counts()
    assert counts["unmarked_packets"] == received(lab) - before >= 0.95 * sent
    assert counts["exceeding_packets"] == 0


def test_the_aggregate_of_a_neighbour_keeps_its_mark_to_what_was_agreed(lab: Lab) -> None:
    edge = Edge(lab, "--edge", f"to-alpha:{RATE_BPS}")
    try:
        before = received(lab)
        sent, took_s = edge.send(PORT + 1, EXPEDITED)
        counts = edge.counts()
        most = RATE_BPS * (took_s + DEPTH_MS / 1e3) / 8 / (PAYLOAD_BYTES + HEADER_BYTES) + 2
        assert 0 < counts["conforming_packets"] <= most
        # Above it is best effort, not lost.
        assert counts["conforming_packets"] + counts["exceeding_packets"] == received(lab) - before >= 0.95 * sent
        assert edge.agent.run("--off").returncode == 0
        edge.send(PORT + 1, EXPEDITED)
        assert edge.counts() == counts
    finally:
        edge.agent.stop()
    attached = lab.exec("bravo", ["bpftool", "-j", "net", "show", "dev", "to-alpha"]).stdout
    assert "police" not in attached


def test_an_interface_that_is_not_there_is_said(lab: Lab) -> None:
    agent = Node(lab, "bravo")
    told: subprocess.CompletedProcess[str] = agent.run(
        "--node", "bravo", "--cgroup", str(lab.node_cgroup("bravo")), "--edge", "to-nowhere"
    )
    assert told.returncode == 1
    assert "--edge to-nowhere: this node has no such interface" in told.stderr
