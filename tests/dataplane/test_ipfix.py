"""Flow records as IPFIX, read by a collector of others: nfcapd and nfdump."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.network import Lab
from support.agent import PORT, Node
from support.waiting import until

pytestmark = pytest.mark.lab

RATE_BPS = 20_000_000
SENT_BYTES = 5_000_000
COLLECTOR_PORT = 4739
# Headers of IP and TCP with a time stamp on full segments, acknowledgements of the handshake, nothing retransmitted.
MOST_WITH_HEADERS = 1.06

# No grant matches what goes there; premium by its code point.
PLAIN_PORT = PORT + 1
PREMIUM_TOS = 46 << 2

SINK = f"""
import socket, threading
def take(listener):
    connection = listener.accept()[0]
    while connection.recv(1 << 20):
        pass
for port in ({PORT}, {PLAIN_PORT}):
    threading.Thread(target=take, args=[socket.create_server(("", port))]).start()
"""
# Stays open for some seconds: the agent looks at flows once a second, or every few where it gets little time.
SOURCE = f"""
import socket, sys, time
opened = []
for port, tos in (({PORT}, 0), ({PLAIN_PORT}, {PREMIUM_TOS})):
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    connection.connect((sys.argv[1], port))
    connection.sendall(bytes({SENT_BYTES}))
    opened.append(connection)
time.sleep(6)
"""


@pytest.fixture
def collector(lab: Lab, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """nfcapd on bravo, which writes its file when it ends."""
    flows = tmp_path / "flows"
    flows.mkdir()
    command = ["nfcapd", "-w", str(flows), "-p", str(COLLECTOR_PORT), "-b", lab.address("bravo"), "-t", "3600"]
    with (tmp_path / "nfcapd.log").open("w") as log:
        process = lab.popen("bravo", command, stdout=log, stderr=log)
    until(lambda: f":{COLLECTOR_PORT}" in lab.exec("bravo", ["ss", "-Hlun"]).stdout, "nfcapd listens")
    yield process
    if process.poll() is None:
        process.kill()
        process.wait()


def test_a_collector_reads_what_flows_sent(lab: Lab, collector: subprocess.Popen[str], tmp_path: Path) -> None:
    agent = Node(lab, "alpha")
    agent.grant(RATE_BPS)
    agent.start("--ipfix", f"{lab.address('bravo')}:{COLLECTOR_PORT}")
    sink = lab.popen("bravo", ["/usr/bin/python3", "-c", SINK], stdout=subprocess.DEVNULL)
    try:
        until(lambda: f":{PLAIN_PORT}" in lab.exec("bravo", ["ss", "-Hltn"]).stdout, "the receiver listens")
        lab.exec("alpha", ["/usr/bin/python3", "-c", SOURCE, lab.address("bravo")], timeout_s=60)
        until(lambda: agent.status()["ipfix"]["sent"] == 2, "the ends of the flows are told")
        assert agent.status()["ipfix"]["lost"] == 0
        assert agent.status()["flows"] == []
    finally:
        agent.stop()
        sink.kill()
        sink.wait()
    collector.terminate()
    collector.wait(timeout=30)
    told = subprocess.run(
        ["nfdump", "-R", str(tmp_path / "flows"), "-o", "csv"], capture_output=True, text=True, check=True, timeout=30
    )
    flows = {row["dp"]: row for row in csv.DictReader(told.stdout.splitlines()) if row["pr"] == "TCP"}
    assert set(flows) == {str(PORT), str(PLAIN_PORT)}
    for flow in flows.values():
        assert (flow["sa"], flow["da"]) == (lab.address("alpha"), lab.address("bravo"))
        assert SENT_BYTES <= int(flow["ibyt"]) <= MOST_WITH_HEADERS * SENT_BYTES
        assert int(flow["ipkt"]) >= SENT_BYTES / 1448
        assert 2.0 <= float(flow["td"]) <= 60
    assert int(flows[str(PORT)]["stos"]) == 0
    assert int(flows[str(PLAIN_PORT)]["stos"]) == PREMIUM_TOS


def test_a_collector_that_is_away_costs_records_and_nothing_else(lab: Lab) -> None:
    agent = Node(lab, "alpha")
    agent.grant()
    agent.start("--ipfix", f"{lab.address('bravo')}:{COLLECTOR_PORT}")
    try:
        assert agent.status()["ipfix"]["collector"].endswith(f":{COLLECTOR_PORT}")
    finally:
        agent.stop()
    assert agent.process is not None
    assert agent.process.returncode == 0


@pytest.mark.parametrize("wrong", ["collector.example:4739", "10.0.0.1", "10.0.0.1:0"])
def test_an_address_that_is_none_is_said(lab: Lab, wrong: str) -> None:
    agent = Node(lab, "alpha")
    options = ["--node", "alpha", "--cgroup", str(lab.node_cgroup("alpha")), "--ipfix", wrong]
    told = agent.run(*options)
    assert told.returncode == 1
    assert f"{wrong} is not ADDR:PORT or [ADDR]:PORT, in numbers" in told.stderr
