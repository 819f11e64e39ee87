"""Connections of unmodified programs that ask by Quick-Start (RFC 4782, section 4), between two nodes 100 ms apart."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart_lab import topology
from chart_lab.network import Lab
from chart_lab.topology import Impairment, Schedule
from support import first_flight
from support.agent import PORT, Node
from support.waiting import until

pytestmark = pytest.mark.lab

DELAY_MS = 50.0
OCTETS = 256_000
REQUEST_BPS = 81_920_000
SINK = f"""
import socket, threading
listener = socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True, backlog=16)
def drain(connection):
    while connection.recv(1 << 20):
        pass
while True:
    threading.Thread(target=drain, args=(listener.accept()[0],), daemon=True).start()
"""
PROGRAM = ["/usr/bin/python3", first_flight.__file__]
LINK = "alpha:to-bravo"
IPV6 = {"alpha": "fd00:c4a7::1", "bravo": "fd00:c4a7::2"}
# All of it is in flight at once, where slow start has ten segments, and twenty a round trip later.
MANY = 100


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes on a link of 100 Mb/s without loss, with addresses of both families."""
    loaded = topology.load("two-node")
    changed = {"delay_ms": DELAY_MS, "loss": 0.0, "rate_mbit": 100.0}
    links = [topology.Link.model_validate({**link.model_dump(), **changed}) for link in loaded.links]
    state = tmp_path_factory.mktemp("labs")
    with Lab(loaded.model_copy(update={"links": links}), f"t{secrets.token_hex(3)}", state_dir=state) as built:
        for node, other in (("alpha", "bravo"), ("bravo", "alpha")):
            built.exec(node, ["ip", "addr", "add", f"{IPV6[node]}/64", "dev", f"to-{other}", "nodad"])
        yield built


@pytest.fixture
def nodes(lab: Lab) -> Iterator[dict[str, Node]]:
    """Both with an agent whose connections ask, and a program on bravo that takes what comes."""
    running = {name: Node(lab, name) for name in ("alpha", "bravo")}
    for (name, node), other in zip(running.items(), ("bravo", "alpha"), strict=True):
        node.grant()
        node.start("--quick-start", str(REQUEST_BPS), "--link", f"{name}:{other}=to-{other}:100000000")
    sink = lab.popen("bravo", ["/usr/bin/python3", "-c", SINK], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: f":{PORT}" in lab.exec("bravo", ["ss", "-Hltn"]).stdout, "bravo listens")
    until(
        lambda: all(node.status()["links"][0]["classifier"] for node in running.values()),
        "the classifiers are attached",
    )
    yield running
    sink.kill()
    sink.wait()
    for node in running.values():
        node.stop()


def counted(node: Node) -> dict[str, int]:
    told: dict[str, int] = node.status()["quick_start"]
    return told


def since(node: Node, before: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in counted(node).items() if value != before[name]}


def sent(lab: Lab, node: str, *words: str) -> dict[str, Any]:
    """What a sender on a node saw."""
    done = lab.exec(node, [*PROGRAM, *words])
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_connection_begins_with_what_was_approved(lab: Lab, nodes: dict[str, Node], family: str) -> None:
    address = IPV6["bravo"] if family == "ipv6" else lab.address("bravo")
    before, there = counted(nodes["alpha"]), counted(nodes["bravo"])
    seen = sent(lab, "alpha", "connect", address, str(PORT), str(OCTETS))
    assert seen["most_in_flight"] > MANY, seen
    assert seen["controls"][0] == "trinity"
    assert seen["controls"][-1] != "trinity"
    assert since(nodes["alpha"], before) == {"asked": 1, "approved": 1, "responded": 1}
    assert since(nodes["bravo"], there) == {"asked": 1, "approved": 1, "responded": 1}


FIELDS = {
    "ipv4": ("ip.opt.qs_func", "ip.opt.qs_rate", "ip.opt.qs_ttl", "ip.ttl"),
    "ipv6": ("ipv6.opt.qs_func", "ipv6.opt.qs_rate", "ipv6.opt.qs_ttl", "ipv6.hlim"),
}
COMMON = ("tcp.flags.syn", "tcp.flags.ack", "tcp.options.qs.rate", "tcp.options.qs.ttl_diff", "tcp.window_size")
RATE, REPORT = "11", "8"


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_wireshark_reads_what_goes_over_the_link(lab: Lab, nodes: dict[str, Node], tmp_path: Path, family: str) -> None:
    """Both requests, both responses, the window behind the SYN-ACK and the report, with checksums that are right."""
    address = IPV6["bravo"] if family == "ipv6" else lab.address("bravo")
    capture = tmp_path / "packets.pcap"
    watching = lab.popen("bravo", ["tcpdump", "-U", "-Z", "root", "-i", "to-alpha", "-w", str(capture), "ip or ip6"])
    try:
        until(lambda: capture.exists() and capture.stat().st_size > 0, "tcpdump watches")
        sent(lab, "alpha", "connect", address, str(PORT), "1000")
        until(lambda: len(dissected(capture, "tcp.stream")) >= 8, "the packets are captured")
    finally:
        watching.terminate()
        watching.communicate()
    rows = dissected(capture, *FIELDS[family], *COMMON)
    of_option, of_tcp = [row[:4] for row in rows], [row[4:] for row in rows]
    request, answer, window, report = of_option[:4]
    assert request[:2] == answer[:2] == ["0", RATE]
    assert [row[:2] for row in of_tcp[:4]] == [["1", "0"], ["1", "1"], ["0", "1"], ["0", "1"]]
    assert of_tcp[1][2:4] == [RATE, str((int(request[3]) - int(request[2])) % 256)]
    assert window == ["", "", "", answer[3]]
    assert int(of_tcp[2][4]) > 65_535
    assert of_tcp[3][2:4] == [RATE, str((int(answer[3]) - int(answer[2])) % 256)]
    assert report[:2] == [REPORT, RATE]
    bad = dissected(capture, "frame.number", display="tcp.checksum.bad or ip.checksum.bad or tcp.analysis.flags")
    assert all(int(one[0]) > 3 for one in bad), bad


def dissected(capture: Path, *fields: str, display: str = "tcp") -> list[list[str]]:
    """Fields of the captured packets as tshark has them; of those that arrive with a checksum that is not computed."""
    wanted = [word for field in fields for word in ("-e", field)]
    command = ["tshark", "-r", str(capture), "-Y", display, "-T", "fields", *wanted]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [line.split("\t") for line in told.removesuffix("\n").split("\n") if line]


def test_a_listener_that_sends_begins_so_too(lab: Lab, nodes: dict[str, Node], tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    with told.open("w") as out:
        words = ["listen", lab.address("bravo"), str(PORT + 1), str(OCTETS)]
        sender = lab.popen("bravo", [*PROGRAM, *words], stdout=out)
        until(lambda: f":{PORT + 1}" in lab.exec("bravo", ["ss", "-Hltn"]).stdout, "bravo listens")
        before = counted(nodes["bravo"])
        lab.exec("alpha", [*PROGRAM, "read", lab.address("bravo"), str(PORT + 1)])
        sender.wait(timeout=20)
    seen = json.loads(told.read_text())
    assert seen["most_in_flight"] > MANY, seen
    assert since(nodes["bravo"], before)["approved"] == 1


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_after_an_idle_time_it_asks_again(lab: Lab, nodes: dict[str, Node], family: str) -> None:
    address = IPV6["bravo"] if family == "ipv6" else lab.address("bravo")
    before = counted(nodes["alpha"])
    seen = sent(lab, "alpha", "connect", address, str(PORT), str(OCTETS), "1.5")
    assert since(nodes["alpha"], before)["asked"] == 2
    assert since(nodes["alpha"], before)["approved"] == 2
    # The first segments go as the kernel restarts an idle connection; the answer comes with their acknowledgement.
    assert seen["most_early"] > MANY, seen
    assert "trinity" in seen["controls"]


def test_a_loss_of_what_was_paced_takes_it_all_back(lab: Lab, nodes: dict[str, Node]) -> None:
    lab.impair(LINK, Impairment(schedule=Schedule(lost=[40, 80, 120])))
    try:
        seen = sent(lab, "alpha", "connect", lab.address("bravo"), str(PORT), str(OCTETS))
    finally:
        lab.impair(LINK, Impairment(schedule="none"))
    # The initial window, and slow start up to half of what arrived, as if nothing had been approved.
    assert seen["most_in_flight"] > MANY, seen
    assert seen["least_cwnd_in_recovery"] <= 10, seen
    assert seen["ssthresh"] <= OCTETS / 1448 / 2 + 1, seen
    assert seen["controls"][-1] != "trinity", seen


CONNECT = """
import selectors, socket, sys
address, port, left, opened, failed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), 0, 0
poll, waiting = selectors.DefaultSelector(), 0
while left or waiting:
    while left and waiting < 250:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((address, port))
        poll.register(one, selectors.EVENT_WRITE)
        left, waiting = left - 1, waiting + 1
    ready = poll.select(10)
    if not ready:
        failed += waiting
        break
    for key, _ in ready:
        error = key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        opened, failed, waiting = opened + (not error), failed + bool(error), waiting - 1
        poll.unregister(key.fileobj)
        key.fileobj.close()
print(opened, failed)
"""
LISTEN = f"""
import socket
listener = socket.create_server(("", {PORT}), backlog=1024)
while True:
    listener.accept()[0].close()
"""
CONNECTIONS = 5000


@pytest.mark.parametrize("agents", ["alpha", "bravo"])
def test_a_host_that_knows_none_of_it_loses_no_connection(lab: Lab, agents: str) -> None:
    """Alpha opens all of them; only one of the two has an agent."""
    node = Node(lab, agents)
    node.grant()
    other = "bravo" if agents == "alpha" else "alpha"
    node.start("--quick-start", str(REQUEST_BPS), "--link", f"{agents}:{other}=to-{other}:100000000")
    listener = lab.popen(
        "bravo", ["/usr/bin/python3", "-c", LISTEN], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: f":{PORT}" in lab.exec("bravo", ["ss", "-Hltn"]).stdout, "bravo listens")
        until(lambda: node.status()["links"][0]["classifier"], "the classifier is attached")
        told = lab.exec("alpha", ["/usr/bin/python3", "-c", CONNECT, lab.address("bravo"), str(PORT), str(CONNECTIONS)])
        assert told.stdout.split() == [str(CONNECTIONS), "0"]
        asked = counted(node)["asked"]
        assert asked == (CONNECTIONS if agents == "alpha" else 0)
        assert counted(node)["unanswered"] == 0
    finally:
        listener.kill()
        listener.wait()
        node.stop()
