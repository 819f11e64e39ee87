"""An agent that observes changes nothing on its node, and one that enforced leaves the node as it was before: when its
mode changes, when it stops, and when the next one starts after a crash."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.experiments.signal_lab import Signals, ask
from chart_lab.network import Lab
from support.agent import PORT, Node
from support.node_state import differences, snapshot
from support.signals import Flow, control_of
from support.waiting import poll

pytestmark = pytest.mark.lab

RATE_BPS = 40_000_000
# What is promised of a change of mode.
LIMIT_S = 2.0
IDLE_PORT = PORT + 1
# Connections that send nothing, so that the kernel has no reason to change them.
IDLE = f"""
import socket, sys, time
listener = socket.create_server(("", {IDLE_PORT}))
print("ready", flush=True)
connections = [socket.create_connection((sys.argv[1], {IDLE_PORT}))] if len(sys.argv) > 1 else []
print("connected", flush=True)
connections += [listener.accept()[0] for _ in range(0 if connections else 1)]
time.sleep(600)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Two nodes on a link of 100 Mb/s that loses nothing: a packet that is seen twice was sent twice."""
    loaded = topology.load("two-node")
    links = [topology.Link.model_validate({**link.model_dump(), "delay_ms": 5, "loss": 0}) for link in loaded.links]
    with Lab(
        loaded.model_copy(update={"links": links}), f"o{secrets.token_hex(3)}", state_dir=tmp_path / "labs"
    ) as built:
        # The network begins with buffers of 64 MiB; this node begins as it was bought.
        for name in ("tcp_rmem", "tcp_wmem"):
            built.exec("alpha", ["sysctl", "-qw", f"net.ipv4.{name}=4096 131072 6291456"])
        yield built


@pytest.fixture
def idle(lab: Lab) -> Iterator[None]:
    """A listening socket on each node and a connection between them, all older than the agent."""
    there = lab.popen("bravo", ["/usr/bin/python3", "-c", IDLE])
    assert there.stdout is not None
    assert there.stdout.readline() == "ready\n"
    here = lab.popen("alpha", ["/usr/bin/python3", "-c", IDLE, lab.address("bravo")])
    assert here.stdout is not None
    assert [here.stdout.readline() for _ in range(2)] == ["ready\n", "connected\n"]
    yield
    for process in (here, there):
        process.kill()
        process.communicate()


def options(lab: Lab, node: Node) -> list[str]:
    """Everything that an agent can be given: a link with its capacity, signalling that would ask, an edge."""
    (link,) = lab.links_of(node.name)
    interface = link.partition(":")[2]
    signals = Signals(lab.topology, asks={node.name: [ask(port=PORT, available_bps=RATE_BPS)]})
    file = node.directory / "signals.json"
    file.write_text(json.dumps(signals.file(node.name)))
    file.chmod(0o600)
    return ["--link", f"{link}={interface}:100000000", "--signal-file", str(file), "--edge", interface]


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    """The agent of alpha, not started."""
    made = Node(lab, "alpha")
    yield made
    made.stop()


def captured(lab: Lab, file: Path, expression: str) -> list[str]:
    told = lab.exec("alpha", ["tcpdump", "-n", "-r", str(file), expression], check=False).stdout
    return told.splitlines()


@pytest.mark.usefixtures("idle")
def test_a_node_that_observes_is_as_without_an_agent(lab: Lab, node: Node, tmp_path: Path) -> None:
    before = snapshot(lab, "alpha", IDLE_PORT)
    assert len(before["sockets"][IDLE_PORT]) == 2
    node.grant(RATE_BPS, enforcement="observe")
    node.start(*options(lab, node))
    packets = tmp_path / "packets.pcap"
    interface = lab.links_of("alpha")[0].partition(":")[2]
    words = ["tcpdump", "-U", "-i", interface, "-w", str(packets)]
    capture = lab.popen("alpha", words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert poll(lambda: packets.exists() and packets.stat().st_size > 0, bool, 10)
    flow = Flow(lab, octets=20e6)
    try:
        seen = poll(node.status, lambda told: told["signalling"]["counters"]["would_ask"] > 0, 10)
        assert seen["enforcement"] == "observe"
        # What it would do is told.
        (grant,) = seen["grants"]
        assert grant["would_run_at_bps"] == RATE_BPS
        assert flow.whole()
    finally:
        flow.close()
        capture.terminate()
        capture.communicate()
    assert differences(before, snapshot(lab, "alpha", IDLE_PORT)) == {}
    assert len(captured(lab, packets, f"tcp dst port {PORT} and tcp[tcpflags] & tcp-syn != 0")) == 1
    assert captured(lab, packets, "ip[0] & 0xf != 5") == []
    assert captured(lab, packets, "udp") == []
    assert captured(lab, packets, "ip[1] != 0") == []
    node.stop()
    assert differences(before, snapshot(lab, "alpha", IDLE_PORT)) == {}


def enforcing(lab: Lab, node: Node) -> None:
    """Waits until the node has everything that goes with the mode."""

    def changed() -> set[str]:
        now = snapshot(lab, "alpha")
        return {
            name
            for name, there in (
                ("buffers", now["sysctls"]["net.ipv4.tcp_rmem"].endswith(str(64 << 20))),
                ("queue", "htb" in now["queues"]),
                ("offload", any(link["gso_max_size"] == 12_500 for link in now["links"])),
            )
            if there
        }

    node.grant(RATE_BPS)
    assert poll(changed, lambda found: len(found) == 3, 10) == {"buffers", "queue", "offload"}


def reach(lab: Lab, before: dict[str, object]) -> dict[str, tuple[object, object]]:
    """What still differs when the promised time is over."""
    end = time.monotonic() + LIMIT_S
    found = differences(before, snapshot(lab, "alpha"))
    while found and time.monotonic() < end:
        found = differences(before, snapshot(lab, "alpha"))
    return found


def test_a_node_that_enforced_is_as_before_once_it_observes_or_stops(lab: Lab, node: Node) -> None:
    before = snapshot(lab, "alpha")
    node.grant(RATE_BPS, enforcement="observe")
    node.start(*options(lab, node))
    own = lab.exec("alpha", ["sysctl", "-n", "net.ipv4.tcp_congestion_control"]).stdout.strip()
    flow = Flow(lab)
    try:
        for mode in ("observe", "off"):
            enforcing(lab, node)
            assert poll(lambda: control_of(lab), lambda found: found == "trinity", 10) == "trinity"
            node.grant(RATE_BPS, enforcement=mode)
            assert reach(lab, before) == {}
            assert control_of(lab) == own
            assert not (node.directory / "changed-settings").exists()
    finally:
        flow.close()
    enforcing(lab, node)
    node.stop()
    assert differences(before, snapshot(lab, "alpha")) == {}


@pytest.mark.parametrize("by", ["the next agent", "--cleanup"])
def test_what_a_killed_agent_changed_is_put_back(lab: Lab, node: Node, by: str) -> None:
    before = snapshot(lab, "alpha")
    node.grant(RATE_BPS)
    node.start(*options(lab, node))
    enforcing(lab, node)
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    left = differences(before, snapshot(lab, "alpha"))
    assert {"sysctls.net.ipv4.tcp_rmem", "sysctls.net.ipv4.tcp_wmem", "queues", "links"} <= left.keys()
    if by == "--cleanup":
        cleaned = node.run("--cleanup", "--cgroup", str(lab.node_cgroup("alpha")))
        assert cleaned.returncode == 0, cleaned.stderr
    else:
        node.grant(RATE_BPS, enforcement="observe")
        node.start(*options(lab, node))
    assert reach(lab, before) == {}


def test_a_node_that_was_never_told_a_mode_observes(lab: Lab, node: Node) -> None:
    node.rates.write_text(json.dumps({"grants": []}))
    before = snapshot(lab, "alpha")
    node.start(*options(lab, node))
    assert node.status()["enforcement"] == "observe"
    assert differences(before, snapshot(lab, "alpha")) == {}


def test_a_link_without_a_capacity_is_observed_and_says_so(lab: Lab, node: Node) -> None:
    node.grant(RATE_BPS)
    link = lab.links_of("alpha")[0]
    node.start("--link", f"{link}={link.partition(':')[2]}")
    (told,) = node.status()["links"]
    assert told["capacity_bps"] == 0
    assert "is only observed, it has no capacity" in told["fault"]
    assert "htb" not in lab.exec("alpha", ["tc", "qdisc", "show"]).stdout
