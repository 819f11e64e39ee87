"""The overlay between real nodes: packets take it, pass a cut, and take the kernel's routes whenever it is off or its
agent is gone; strangers and replays get nothing.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab import numbered_datagrams, topology
from chart_lab.experiments import agents, flow_moves, overlay_nodes
from chart_lab.experiments.failover import OWNED, ways
from chart_lab.experiments.overlay_nodes import told
from chart_lab.network import Lab
from chart_lab.topology import Impairment
from support.waiting import poll

pytestmark = pytest.mark.lab

PORT = 18480
# Of "off", and of a kill: packets take the kernel's routes.
LIMIT_S = 2.0
PROBE_ETHERTYPE = "88b5"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Two ways between source and destination, the northern one shorter; nothing is lost."""
    with Lab(ways(topology.load("two-path"), 0.0), f"v{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as built:
        yield built


@pytest.fixture
def overlaid(lab: Lab) -> Iterator[Lab]:
    """The same with the overlay on its four routers."""
    files = overlay_nodes.write(lab, OWNED)
    with agents.running(lab, {node: ["--overlay-file", str(path)] for node, path in files.items()}):
        overlay_nodes.await_alive(lab, OWNED)
        yield lab


def ping(lab: Lab, *more: str, node: str = "source", to: str = "destination") -> int:
    """How many of ten echoes were answered."""
    words = ["ping", "-c", "10", "-i", "0.05", "-W", "1", "-q", *more, lab.address(to)]
    answer = lab.exec(node, words, check=False).stdout
    return int(next(line for line in answer.splitlines() if "received" in line).split()[3])


def captured(lab: Lab, node: str, interface: str, expression: str, action: list[str]) -> int:
    """Packets that matched on an interface while something was done in `source`."""
    with lab.popen(
        node, ["tcpdump", "-l", "-n", "--immediate-mode", "-i", interface, expression], stderr=subprocess.PIPE
    ) as capture:
        assert capture.stderr is not None
        while "listening" not in capture.stderr.readline():
            pass
        lab.exec("source", action, check=False)
        time.sleep(0.5)
        capture.terminate()
        output, _ = capture.communicate()
    return sum(" IP " in line for line in output.splitlines())


def echo(lab: Lab) -> list[str]:
    return ["ping", "-c", "5", "-i", "0.05", "-W", "1", "-q", lab.address("destination")]


def test_packets_take_the_overlay_and_the_node_has_its_account(overlaid: Lab) -> None:
    assert ping(overlaid) == 10
    entered, passed, left = told(overlaid, "ingress"), told(overlaid, "north"), told(overlaid, "egress")
    # Echoes enter at one end and leave at the other, and answers the other way round.
    assert entered["entered_packets"] == 10
    assert entered["left_packets"] == 10
    assert passed["transit_packets"] == 20
    assert (left["entered_packets"], left["left_packets"]) == (10, 10)
    assert captured(overlaid, "ingress", "to-north", f"udp port {PORT} and greater 120", echo(overlaid)) == 10
    assert captured(overlaid, "ingress", "to-north", "icmp", echo(overlaid)) == 0


def test_what_a_node_of_the_overlay_sends_itself_takes_it_too(overlaid: Lab) -> None:
    assert ping(overlaid, node="ingress") == 10
    assert told(overlaid, "ingress")["entered_packets"] == 10


@pytest.mark.parametrize("link", ["ingress-north", "north-egress"])
def test_packets_pass_a_cut_and_come_back(overlaid: Lab, link: str) -> None:
    overlaid.outage(link, 3.0)
    time.sleep(0.5)
    assert ping(overlaid) == 10
    assert told(overlaid, "south")["transit_packets"] >= 20
    left, right = link.split("-")
    assert not next(one for one in told(overlaid, left)["links"] if one["name"] == right)["alive"]
    poll(lambda: all(one["alive"] for one in told(overlaid, left)["links"]), limit_s=10.0)
    before = told(overlaid, "south")["transit_packets"]
    assert ping(overlaid) == 10
    assert told(overlaid, "south")["transit_packets"] == before


def test_connections_outlive_routes_that_the_kernel_lost(overlaid: Lab) -> None:
    """Both ends of the link lose it, and with it their kernels' only routes to the other side."""
    for node, interface in (("ingress", "to-north"), ("north", "to-ingress")):
        overlaid.exec(node, ["ip", "link", "set", interface, "down"])
    routes = overlaid.exec("ingress", ["ip", "route", "get", overlaid.address("destination")]).stdout
    assert "chart-overlay" in routes
    assert ping(overlaid) == 10
    assert ping(overlaid, node="ingress") == 10


def test_large_packets_are_answered_or_cut_to_size(overlaid: Lab) -> None:
    assert ping(overlaid, "-s", "1422", "-M", "do") == 10
    answer = overlaid.exec(
        "source", ["ping", "-c", "1", "-W", "1", "-s", "1472", "-M", "do", overlaid.address("destination")], check=False
    )
    assert "mtu = 1450" in answer.stdout + answer.stderr
    # The sender has learnt it, and cuts what may be cut.
    assert ping(overlaid, "-s", "1472", "-M", "dont") == 10
    assert told(overlaid, "ingress")["mtu"] == 1450


def test_marks_of_packets_stand_outside_too(overlaid: Lab) -> None:
    """DSCP EF and ECN-capable, entering and passing through."""
    marked = [*echo(overlaid)[:-1], "-Q", "0xba", overlaid.address("destination")]
    expression = f"udp port {PORT} and ip[1] = 0xba"
    assert captured(overlaid, "ingress", "to-north", expression, marked) == 10
    assert captured(overlaid, "egress", "to-north", expression, marked) == 10


def test_off_returns_packets_to_the_kernels_routes(overlaid: Lab) -> None:
    for node in OWNED:
        overlaid.exec(node, [*agents.command(overlaid, node), "--off"])
    assert ping(overlaid) == 10
    assert captured(overlaid, "ingress", "to-north", "icmp", echo(overlaid)) == 10
    assert overlaid.exec("ingress", ["ip", "link", "show", "chart-overlay"], check=False).returncode != 0
    for node in OWNED:
        overlaid.exec(node, [*agents.command(overlaid, node), "--on"])
    overlay_nodes.await_alive(overlaid, OWNED)
    assert captured(overlaid, "ingress", "to-north", "icmp", echo(overlaid)) == 0


def test_a_killed_agent_leaves_nothing_that_takes_packets(overlaid: Lab) -> None:
    for node in OWNED:
        for process in overlaid.processes(node):
            if "chart-agent" in Path(f"/proc/{process}/comm").read_text():
                overlaid.exec(node, ["kill", f"-{signal.SIGKILL.value}", str(process)])
    time.sleep(LIMIT_S)
    assert captured(overlaid, "ingress", "to-north", "icmp", echo(overlaid)) == 10


def test_strangers_and_replays_get_nothing(overlaid: Lab) -> None:
    """Outer packets from an address that is no neighbour's, and a neighbour's own probes and answers once more."""
    local = next(
        link["local"] for link in overlay_nodes.tables(overlaid, OWNED)["ingress"]["links"] if link["name"] == "north"
    )
    stranger = (
        "import socket\n"
        "flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "header = bytes([8, 0, 0, 0, 0, 0, 0, 0])\n"
        "ip = bytes.fromhex('4500001c00000000400100000a0000010a000006')\n"
        "inner = bytes(12) + bytes.fromhex('0800') + ip + bytes(8)\n"
        f"for _ in range(5): flow.sendto(header + inner, ('{local}', {PORT}))\n"
    )
    before = told(overlaid, "ingress")
    overlaid.exec("source", ["/usr/bin/python3", "-c", stranger])
    poll(lambda: told(overlaid, "ingress")["stranger_packets"] == before["stranger_packets"] + 5, limit_s=5.0)
    # From a neighbour's own address: an answer of another session, one to a probe that was never sent, and a kind that
    # there is not.
    forged = (
        "import socket, struct\n"
        "flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "header = bytes([8, 0, 0, 0, 0, 0, 0, 0])\n"
        f"ethernet = bytes(12) + bytes.fromhex('{PROBE_ETHERTYPE}')\n"
        "for kind, session, number in ((2, 1, 1), (2, 0, 1 << 60), (7, 0, 1)):\n"
        "    probe = struct.pack('!BBHIQQQ', 1, kind, 1, 0, session, number, 0)\n"
        f"    flow.sendto(header + ethernet + probe + bytes(14), ('{local}', {PORT}))\n"
    )
    bad = told(overlaid, "ingress")["bad_probes"]
    overlaid.exec("north", ["/usr/bin/python3", "-c", forged])
    poll(lambda: told(overlaid, "ingress")["bad_probes"] == bad + 3, limit_s=5.0)
    assert all(one["alive"] for one in told(overlaid, "ingress")["links"])


def test_a_file_that_changes_is_followed_and_one_that_is_wrong_is_not(overlaid: Lab) -> None:
    file = overlaid.node_directory("ingress") / "overlay.json"
    table = json.loads(file.read_text())
    file.write_text(json.dumps({**table, "links": [*table["links"], {"name": "x"}]}))
    poll(lambda: "links[2].local: expected an address" in told(overlaid, "ingress")["error"], limit_s=5.0)
    assert ping(overlaid) == 10
    assert told(overlaid, "ingress")["entered_packets"] == 10
    # Only south is left: packets go there, and the device is the one of before.
    links = [link for link in table["links"] if link["name"] == "south"]
    owners = [
        {**owner, "paths": [{"colour": 0, "next_hops": ["south"]}]} if "paths" in owner else owner
        for owner in table["owners"]
    ]
    file.write_text(json.dumps({"links": links, "owners": owners}))
    poll(lambda: [one["name"] for one in told(overlaid, "ingress")["links"]] == ["south"], limit_s=5.0)
    # North's file still has the link: answers take it until its probes tell that ingress does not.
    poll(
        lambda: {one["name"]: one["alive"] for one in told(overlaid, "north")["links"]}["ingress"] is False, limit_s=5.0
    )
    before = told(overlaid, "south")["transit_packets"]
    assert ping(overlaid) == 10
    assert told(overlaid, "south")["transit_packets"] >= before + 10


@pytest.fixture
def chosen(lab: Lab) -> Iterator[Lab]:
    """The overlay with paths that flows choose between, all of them alive and as good as each other."""
    files = overlay_nodes.write(lab, OWNED, choices=2)
    with agents.running(lab, {node: ["--overlay-file", str(path)] for node, path in files.items()}):
        overlay_nodes.await_alive(lab, OWNED)
        flow_moves.await_good(lab)
        poll(lambda: takes_both(lab), limit_s=10.0)
        yield lab


def takes_both(lab: Lab) -> bool:
    """Whether new flows of data take either path in turn."""
    return all("data" in path["taken_by"] for path in flow_moves.paths_to(lab, "ingress", "egress"))


def packets_by_path(lab: Lab) -> list[int]:
    """What flows of `ingress` gave to each path to `egress`, the northern first."""
    return [int(path["forwarded_packets"]) for path in flow_moves.paths_to(lab, "ingress", "egress")]


def test_flows_take_both_paths_and_those_of_a_deaf_node_move(chosen: Lab) -> None:
    with flow_moves.flows(chosen, 20, 20.0, 100, 0) as file:
        time.sleep(2.0)
        shares = packets_by_path(chosen)
        assert min(shares) > 0.4 * sum(shares)
        assert told(chosen, "ingress")["flows"] == 20
        with flow_moves.deaf(chosen, "north"):
            poll(lambda: told(chosen, "ingress")["flows_failed_over"] == 10, limit_s=5.0)
            at_s = time.time()
            time.sleep(1.0)
            # Nobody told the ingress of it: its neighbour answers, its path does not.
            assert all(link["alive"] for link in told(chosen, "ingress")["links"])
            assert [path["alive"] for path in flow_moves.paths_to(chosen, "ingress", "egress")] == [False, True]
        flow_moves.await_good(chosen)
        time.sleep(0.5)
        # They stay where they went.
        assert told(chosen, "ingress")["flows_failed_over"] == 10
        arrived = {port for port, sent_s in numbered_datagrams.read(file) if sent_s > at_s}
    assert len(arrived) == 20


def test_voice_takes_one_path_and_leaves_it_when_it_loses(chosen: Lab) -> None:
    with flow_moves.flows(chosen, 20, 20.0, 100, 46 << 2):
        time.sleep(1.0)
        north, south = packets_by_path(chosen)
        assert min(north, south) == 0
        middle = "north" if north else "south"
        chosen.impair(f"ingress-{middle}", Impairment(loss=0.05), "both")
        poll(lambda: told(chosen, "ingress")["flows_moved"] == 20, limit_s=10.0)
        left = flow_moves.paths_to(chosen, "ingress", "egress")[middle == "south"]["left_by"]
        assert "voice" in left
