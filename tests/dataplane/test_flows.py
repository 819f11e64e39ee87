"""Rates on running flows: engaged, shared, released, taken back, and given up when the agent is off or dead.

Brassil et al., The CHART System, section 5; the goals are those of the signalling design: off within 2 s, every rate a
lease, a changed rate in force within 100 ms.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chart_lab.network import Lab
from support.agent import PORT, Node
from support.figures import Figures
from support.waiting import poll, until

pytestmark = pytest.mark.lab

RATE_BPS = 40_000_000
OWN_CONTROL = "reno"
KEPT_CAPABILITIES = {12, 38, 39}  # NET_ADMIN, PERFMON, BPF
Transfer = Callable[[int], None]

SINK = f"""
import socket, threading
listener = socket.create_server(("", {PORT}), backlog=16)
def drain(connection):
    while connection.recv(1 << 20):
        pass
while True:
    threading.Thread(target=drain, args=(listener.accept()[0],), daemon=True).start()
"""
SOURCE = f"""
import socket, sys
connection = socket.socket()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"{OWN_CONTROL}")
connection.connect((sys.argv[1], {PORT}))
block = bytes(1 << 18)
while True:
    connection.sendall(block)
"""


@pytest.fixture
def transfer(lab: Lab) -> Iterator[Transfer]:
    """Starts flows from alpha to bravo that send until the test ends; they ask for a control of their own."""
    running: list[subprocess.Popen[str]] = [
        lab.popen("bravo", ["/usr/bin/python3", "-c", SINK], stdout=subprocess.DEVNULL)
    ]

    def ready() -> bool:
        return f":{PORT}" in lab.exec("bravo", ["ss", "-Hltn"]).stdout

    assert poll(ready, bool, 10)

    def start(count: int) -> None:
        command = ["/usr/bin/python3", "-c", SOURCE, lab.address("bravo")]
        running.extend(lab.popen("alpha", command, stdout=subprocess.DEVNULL) for _ in range(count))

    yield start
    for process in running:
        process.kill()
        process.wait()


def controls(lab: Lab) -> list[str]:
    """The congestion control of every flow, as the kernel tells everybody."""
    told = lab.exec("alpha", ["ss", "-Htin", "state", "established", "dport", "=", f":{PORT}"]).stdout
    return [line.split()[0] for line in told.splitlines() if line.startswith("\t")]


def acknowledged(lab: Lab) -> int:
    """Octets that arrived, over all flows."""
    told = lab.exec("alpha", ["ss", "-Htin", "state", "established", "dport", "=", f":{PORT}"]).stdout
    return sum(int(word.split(":")[1]) for word in told.split() if word.startswith("bytes_acked:"))


def flow_rates(node: Node) -> list[int]:
    """The rate of every flow under trinity."""
    return [flow["rate_bps"] for flow in node.status()["flows"] if flow["congestion_control"] == "trinity"]


def expect_controls(lab: Lab, wanted: list[str]) -> None:
    seen = poll(lambda: controls(lab), lambda got: got == wanted, 30)
    assert seen == wanted


def expect_rates(node: Node, wanted: list[int]) -> None:
    seen = poll(lambda: flow_rates(node), lambda got: got == wanted, 30)
    assert seen == wanted


def test_a_running_flow_is_engaged_released_and_engaged_again(
    lab: Lab, sender: Node, transfer: Transfer, figures: Figures
) -> None:
    transfer(1)
    expect_controls(lab, [OWN_CONTROL])
    sender.grant(RATE_BPS)
    figures.reached(lambda: controls(lab) == ["trinity"], "a running flow is engaged", 1)
    figures.reached(lambda: flow_rates(sender) == [RATE_BPS], "it has its rate", 1)
    sender.grant()
    figures.reached(lambda: controls(lab) == [OWN_CONTROL], "it is released", 1)
    before = acknowledged(lab)
    until(lambda: acknowledged(lab) > before + 100_000, "it goes on")
    sender.grant(RATE_BPS)
    figures.reached(lambda: controls(lab) == ["trinity"], "it is engaged again", 1)


def test_a_new_flow_starts_at_its_rate(lab: Lab, sender: Node, transfer: Transfer, figures: Figures) -> None:
    sender.grant(RATE_BPS)
    until(lambda: sender.status()["grants"], "the agent has the grant")
    transfer(1)
    expect_controls(lab, ["trinity"])
    figures.reached(lambda: flow_rates(sender) == [RATE_BPS], "a new flow has its rate", 1)


def test_a_lost_syn_of_a_granted_flow_is_repeated_soon(lab: Lab, sender: Node, figures: Figures) -> None:
    sender.grant(RATE_BPS)
    until(lambda: sender.status()["grants"], "the agent has the grant")
    lab.outage("alpha-bravo", 10)
    command = ["/usr/bin/python3", "-c", SOURCE, lab.address("bravo")]
    connecting = lab.popen("alpha", command, stdout=subprocess.DEVNULL)

    def repeated() -> int:
        # timer:(on,240ms,2): the last number counts the repetitions.
        told = lab.exec("alpha", ["ss", "-Hton", "state", "syn-sent", "dport", "=", f":{PORT}"]).stdout
        return int(told.rpartition(",")[2].rstrip(")\n ") or 0) if "timer" in told else 0

    try:
        # Without a grant the third repetition comes after seven seconds.
        figures.reached(lambda: repeated() >= 3, "a lost SYN is repeated three times", 1.5, limit_s=5)
    finally:
        connecting.kill()
        connecting.wait()


def test_a_changed_rate_reaches_the_flow(lab: Lab, sender: Node, transfer: Transfer, figures: Figures) -> None:
    sender.grant(RATE_BPS)
    transfer(1)
    expect_rates(sender, [RATE_BPS])
    sender.grant(RATE_BPS // 4)
    figures.reached(lambda: flow_rates(sender) == [RATE_BPS // 4], "a changed rate is in force", 0.5)


def test_flows_of_a_grant_share_it_equally(lab: Lab, sender: Node, transfer: Transfer) -> None:
    sender.grant(RATE_BPS)
    transfer(2)
    expect_rates(sender, [RATE_BPS // 2] * 2)


def test_a_lease_that_ends_gives_the_flow_back(lab: Lab, sender: Node, transfer: Transfer, figures: Figures) -> None:
    sender.grant(RATE_BPS, valid_for_ms=5000)
    transfer(1)
    expect_controls(lab, ["trinity"])
    figures.reached(lambda: controls(lab) == [OWN_CONTROL], "a lease of 5 s is over", 6.5)


def test_observe_computes_and_leaves_flows_alone(lab: Lab, sender: Node, transfer: Transfer) -> None:
    sender.grant(RATE_BPS, enforcement="observe")
    transfer(1)

    def counted() -> dict[str, Any]:
        grants = sender.status()["grants"]
        return grants[0] if grants else {}

    seen = poll(counted, lambda grant: grant.get("delivered_bytes", 0) > 0, 30)
    assert (seen["would_run_at_bps"], seen["kernel_rate_bps"]) == (RATE_BPS, 0)
    assert seen["matching_flows"] == 1
    assert controls(lab) == [OWN_CONTROL]


def test_off_within_two_seconds_and_on_again(lab: Lab, sender: Node, transfer: Transfer, figures: Figures) -> None:
    sender.grant(RATE_BPS)
    transfer(3)
    expect_controls(lab, ["trinity"] * 3)
    assert sender.run("--off").returncode == 0
    figures.reached(lambda: controls(lab) == [OWN_CONTROL] * 3, "all flows are off", 2)
    assert sender.status()["switched_off"] is True
    assert sender.run("--on").returncode == 0
    figures.reached(lambda: controls(lab) == ["trinity"] * 3, "all flows are on again", 2)


def test_a_killed_agent_leaves_flows_running_and_nothing_behind(lab: Lab, sender: Node, transfer: Transfer) -> None:
    sender.grant(RATE_BPS)
    transfer(1)
    expect_controls(lab, ["trinity"])
    assert sender.process is not None
    os.kill(sender.process.pid, signal.SIGKILL)
    sender.process.wait()
    expect_controls(lab, [OWN_CONTROL])
    before = acknowledged(lab)
    until(lambda: acknowledged(lab) > before + 100_000, "the flow goes on")
    attached = subprocess.run(
        ["bpftool", "-j", "cgroup", "show", str(lab.node_cgroup("alpha"))], capture_output=True, text=True, check=True
    )
    assert json.loads(attached.stdout.strip() or "[]") == []
    cleaned = sender.run("--cleanup", "--cgroup", str(lab.node_cgroup("alpha")))
    assert cleaned.returncode == 0, cleaned.stderr
    assert not (sender.directory / "agent.sock").exists()


def test_cleanup_takes_idle_flows_off_trinity(lab: Lab, sender: Node, transfer: Transfer) -> None:
    sender.grant(RATE_BPS)
    idle = lab.popen(
        "alpha",
        [
            "/usr/bin/python3",
            "-c",
            "import socket, sys, signal; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); signal.pause()",
            lab.address("bravo"),
            str(PORT),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        expect_controls(lab, ["trinity"])
        assert sender.process is not None
        os.kill(sender.process.pid, signal.SIGKILL)
        sender.process.wait()
        assert sender.run("--off", "--cgroup", str(lab.node_cgroup("alpha"))).returncode == 0
        assert "trinity" not in controls(lab)
    finally:
        idle.kill()
        idle.wait()


def test_the_agent_keeps_three_capabilities(sender: Node) -> None:
    assert sender.process is not None
    status = Path(f"/proc/{sender.process.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    wanted = sum(1 << bit for bit in KEPT_CAPABILITIES)
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(fields[name], 16) == wanted, name
    for name in ("CapInh", "CapAmb"):
        assert int(fields[name], 16) == 0, name
    assert fields["NoNewPrivs"] == "1"


def test_explain_names_the_first_cause(lab: Lab, sender: Node, transfer: Transfer) -> None:
    sender.grant(RATE_BPS)
    transfer(1)
    expect_controls(lab, ["trinity"])
    told = json.loads(sender.run("--explain", f":{PORT}", "--json").stdout)
    assert "whole rate" in told["flows"][0]["cause"]
    sender.run("--off")
    told = json.loads(sender.run("--explain", f":{PORT}", "--json").stdout)
    assert "switched off" in told["flows"][0]["cause"]
    sender.run("--on")
    sender.grant()

    # One without a grant is told of when it has sent a mebibyte.
    def explained() -> list[str]:
        told = json.loads(sender.run("--explain", f":{PORT}", "--json").stdout)
        return [flow["cause"] for flow in told["flows"]]

    plain = ["no grant matches: the flow uses its default congestion control"]
    assert poll(explained, lambda causes: causes == plain, 30) == plain
    assert sender.status()["flows"] == []


def test_a_broken_rate_file_is_named_and_the_old_grants_stay(lab: Lab, sender: Node, transfer: Transfer) -> None:
    sender.grant(RATE_BPS)
    transfer(1)
    expect_controls(lab, ["trinity"])
    sender.rates.write_text('{"grants": [{}]}')
    told = poll(lambda: sender.status()["rate_file"]["error"], bool, 30)
    assert "grants[0]: request_id" in told
    assert controls(lab) == ["trinity"]
