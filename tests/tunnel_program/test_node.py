"""chart-tunnel node: ends as the file of chart-agent states them, changed and ended while the program runs."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart.common.processes import end_process
from chart_lab import linkem, topology
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.programs import program
from support.waiting import until
from tunnel_program.certificates import Authority, node_names
from tunnel_program.ends import PORT

pytestmark = pytest.mark.lab

DOMAIN = "chart.test"
TUNNEL = "alpha-bravo"
USER_NETWORK, USER_ADDRESS = "172.20.9.0/24", "172.20.9.1"
NOBODY = 65534
NET_ADMIN = 1 << 12
# NET_BIND_SERVICE, NET_ADMIN, SETUID, SETGID, KILL: what the program that starts ends keeps.
SUPERVISOR = NET_ADMIN | 1 << 10 | 1 << 7 | 1 << 6 | 1 << 5


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    loaded = topology.load("two-node")
    with Lab(loaded, f"t{secrets.token_hex(3)}", state_dir=tmp_path_factory.mktemp("labs")) as up:
        yield up


class Node:
    """chart-tunnel of one node with the files that its agent would write."""

    def __init__(self, lab: Lab, name: str, authority: Authority, directory: Path) -> None:
        self.lab, self.name, self.authority = lab, name, authority
        self.directory = directory / name
        # As an agent's: of root alone.
        self.directory.mkdir(mode=0o700)
        self.log = self.directory / "log"
        self.process: subprocess.Popen[str] | None = None
        self.enrol(authority)

    def enrol(self, authority: Authority) -> None:
        """A new certificate."""
        options = authority.issue(self.name, *node_names(self.name, DOMAIN))
        for name, source in (("node.key", options[3]), ("node.pem", options[1])):
            shutil.copy(source, self.directory / f"{name}.new")
            (self.directory / f"{name}.new").chmod(0o600)
            (self.directory / f"{name}.new").rename(self.directory / name)

    def state(self, *ends: dict[str, Any], node: str = "") -> None:
        """What the registry states for this node."""
        fresh = self.directory / "ends.json.new"
        fresh.write_text(json.dumps({"node": node or self.name, "tunnel_ends": ends}))
        fresh.rename(self.directory / "ends.json")

    def start(self) -> None:
        """Starts it."""
        line = [str(program("dataplane/chart-tunnel")), "node", "--state-dir", str(self.directory)]
        with self.log.open("a") as output:
            folder = ["--application-dir", str(program("dataplane/itm-faulty.so").parent)]
            words = [*line, "--authority-ca", str(self.authority.path), *folder]
            self.process = self.lab.popen(self.name, words, stdout=output, stderr=output)

    def stop(self) -> None:
        """Ends it in good order."""
        if self.process is not None:
            end_process(self.process)
        self.process = None

    def get(self, tunnel: str = TUNNEL) -> dict[str, Any]:
        """State of an end; empty while it does not answer."""
        try:
            return linkem.command(self.directory / f"tunnel-{tunnel}.sock", command="get")
        except LabError:
            return {}

    def established(self, tunnel: str = TUNNEL) -> int:
        """Connections of an end."""
        return int(self.get(tunnel).get("gauges", {}).get("connections_established", 0))

    def children(self) -> list[int]:
        """Process ids of the ends."""
        assert self.process is not None
        pid = self.process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def nodes(lab: Lab, tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    authority = Authority(tmp_path / "authority", "authority")
    pair = (Node(lab, "alpha", authority, tmp_path), Node(lab, "bravo", authority, tmp_path))
    try:
        for node in pair:
            node.start()
        yield pair
    finally:
        for node in pair:
            node.stop()


def ends(lab: Lab, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both ends of a tunnel from alpha to bravo."""
    common = {"tunnel": TUNNEL, "address": lab.address("bravo"), "port": PORT, "interface": "chart-itm0"}
    origin = {
        **common,
        "role": "origin",
        "peer_node": "bravo",
        "period_ms": 200,
        "congestion": "cubic",
        "prefixes": [USER_NETWORK],
        **changes,
    }
    return origin, {**common, "role": "destination", "peer_node": "alpha"}


def status_of(pid: int) -> dict[str, str]:
    """Fields of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_ends_come_change_and_go_while_the_program_runs(lab: Lab, nodes: tuple[Node, Node]) -> None:
    alpha, bravo = nodes
    origin, destination = ends(lab)
    bravo.state(destination)
    alpha.state(origin)
    until(lambda: alpha.established() == 1, "the tunnel")
    assert alpha.get()["tls"] is True
    lab.exec("bravo", ["ip", "address", "replace", f"{USER_ADDRESS}/32", "dev", "lo"])
    assert f"{USER_NETWORK} dev chart-itm0" in lab.exec("alpha", ["ip", "route"]).stdout
    lab.exec("alpha", ["ping", "-c", "2", "-i", "0.2", "-W", "2", "-I", lab.address("alpha"), USER_ADDRESS])
    assert bravo.get()["counters"]["delivered_packets"] >= 2

    state = linkem.command(alpha.directory / "tunnels.sock", command="get")
    assert state["gauges"] == {"ends_stated": 1, "ends_running": 1}
    assert [(one["tunnel"], one["runs"]) for one in state["ends"]] == [(TUNNEL, True)]
    (before,) = alpha.children()
    alpha.state(origin)
    bravo.enrol(bravo.authority)
    alpha.state({**origin, "classes": [{"name": "gold", "weight": 3, "selector": "dscp=46"}]})
    until(lambda: [one["name"] for one in alpha.get().get("classes", [])] == ["gold"], "the new class")
    until(lambda: alpha.established() == 1, "the tunnel with the new certificate")
    (after,) = alpha.children()
    assert before != after

    alpha.state()
    until(lambda: not alpha.children(), "the end of the end")
    assert "chart-itm0" not in lab.exec("alpha", ["ip", "link"]).stdout
    until(lambda: bravo.established() == 0, "the destination without an origin")
    assert not (alpha.directory / f"tunnel-{TUNNEL}.sock").exists()


def test_applications_follow_what_is_stated_and_the_end_goes_on(lab: Lab, nodes: tuple[Node, Node]) -> None:
    alpha, bravo = nodes
    origin, destination = ends(lab)
    bravo.state(destination)

    def state(**fields: Any) -> None:
        common = {"name": "mine", "file": "itm-faulty.so", "argument": "pass", "limit_ms": 40, "off": False}
        alpha.state({**origin, "applications": [{**common, **fields}]})

    def application() -> dict[str, Any]:
        return next(iter(alpha.get().get("applications", [])), {})

    state()
    until(lambda: application().get("state") == "on", "the application")
    [pid] = alpha.children()
    state(argument="drop")
    until(lambda: application()["argument"] == "drop", "its new parameters")
    assert application()["replacements"] == 0
    state(argument="20000", file="itm-template.so")
    until(lambda: application()["replacements"] == 1, "another one in its place")
    state(argument="20000", file="itm-template.so", off=True)
    until(lambda: application()["state"] == "off", "it is off")
    alpha.state(origin)
    until(lambda: not application(), "it is gone")
    # All of that in the process that the end had from the start.
    assert alpha.children() == [pid]


def test_ends_are_without_root_and_start_again(lab: Lab, nodes: tuple[Node, Node]) -> None:
    alpha, bravo = nodes
    origin, destination = ends(lab)
    alpha.state(origin)
    bravo.state(destination)
    until(lambda: alpha.established() == 1, "the tunnel")
    cubic_is_free = "cubic" in lab.exec("alpha", ["sysctl", "-n", "net.ipv4.tcp_allowed_congestion_control"]).stdout
    for node in nodes:
        (child,) = node.children()
        for task in Path(f"/proc/{child}/task").iterdir():
            status = status_of(int(task.name))
            assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(NOBODY)}
            assert status["Groups"] == ""
            for kind in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
                # NET_ADMIN is needed for a congestion control that this kernel keeps for the privileged, and no more.
                kept = NET_ADMIN if node is alpha and kind in ("CapPrm", "CapEff") and not cubic_is_free else 0
                assert int(status[kind], 16) == kept, kind
        assert status_of(child)["NoNewPrivs"] == "1"
        assert node.process is not None
        status = status_of(node.process.pid)
        assert int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == SUPERVISOR
    (killed,) = bravo.children()
    os.kill(killed, signal.SIGKILL)
    until(lambda: alpha.established() == 0, "the loss")
    until(lambda: alpha.established() == 1, "the tunnel again")
    assert "it is started again in 1 s" in bravo.log.read_text()
    # Without its agent and after a restart, a node goes on with what it was told last.
    alpha.stop()
    alpha.start()
    until(lambda: alpha.established() == 1, "the tunnel of the restarted program")


def test_only_the_nodes_that_are_stated_connect(lab: Lab, nodes: tuple[Node, Node]) -> None:
    alpha, bravo = nodes
    origin, destination = ends(lab)
    bravo.state({**destination, "peer_node": "charlie"})
    alpha.state(origin)
    until(lambda: "certificate is refused: hostname mismatch" in bravo.get().get("last_error", ""), "the refusal")
    assert alpha.established() == 0
    bravo.state(destination)
    until(lambda: alpha.established() == 1, "the tunnel")
    # Another file than this node's changes nothing.
    alpha.state(node="bravo")
    until(lambda: "the certificate is of node alpha; the ends stay" in alpha.log.read_text(), "the refusal of the file")
    assert alpha.established() == 1


def test_a_node_that_is_not_enrolled_waits(lab: Lab, nodes: tuple[Node, Node]) -> None:
    alpha, bravo = nodes
    origin, destination = ends(lab)
    for node in nodes:
        node.stop()
    (bravo.directory / "node.pem").unlink()
    bravo.start()
    bravo.state(destination)
    alpha.start()
    alpha.state(origin)
    until(lambda: "node.pem cannot be read" in bravo.log.read_text(), "the sentence")
    assert bravo.children() == []
    bravo.enrol(bravo.authority)
    until(lambda: alpha.established() == 1, "the tunnel of the enrolled node")
