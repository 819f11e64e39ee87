"""An elastic tunnel from REST to packets: an operator states two ends and a target, the nodes' programs follow, traffic
arrives at the target, a new target needs no restart, and nothing is left of a tunnel that is taken back.
"""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from chart.common.processes import end_process
from chart_lab import enrolment, linkem
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.platform.laboratory import chart, fetch
from chart_lab.platform.stack import Platform
from support.waiting import until

pytestmark = pytest.mark.lab

ENROLLED_LIMIT_S = 20.0
TUNNEL, DEVICE, PORT = "acceptance", "chart-itm5", 7455
USER_NETWORK, USER_ADDRESS, USER_PORT = "172.20.55.0/24", "172.20.55.1", 5455
TARGET_BPS, NEW_TARGET_BPS = 8_000_000, 16_000_000
# What is stated of a node beside its live state.
STATED = ("description", "addresses", "sensor_pod_target", "tags", "map_position")
# The mean of so many measurement periods, half a second each, is compared with the target.
JUDGED_PERIODS = 6
WITHIN = 0.1
SILENCE_LIMIT_S = 30.0
# Three times the silence from which a tunnel is shown as silent, 10 s.
FORGOTTEN_LIMIT_S = 60.0


def state_ends(rest: httpx.Client, node: str, *ends: dict[str, Any]) -> None:
    """A node's tunnel ends, of the revision that it has."""
    before = rest.get(f"/v1/nodes/{node}").raise_for_status()
    body = {name: before.json()[name] for name in STATED}
    headers = {"If-Match": before.headers["ETag"]}
    rest.put(f"/v1/nodes/{node}", json={**body, "tunnel_ends": list(ends)}, headers=headers).raise_for_status()


def stated(lab: Lab) -> tuple[dict[str, Any], dict[str, Any]]:
    """The origin at alpha and the destination at bravo."""
    common = {"tunnel": TUNNEL, "address": lab.address("bravo"), "port": PORT, "interface": DEVICE}
    origin = {"role": "origin", "peer_node": "bravo", "period_ms": 500, "prefixes": [USER_NETWORK]}
    return {**common, **origin}, {**common, "role": "destination", "peer_node": "alpha"}


def shown(rest: httpx.Client) -> dict[str, Any]:
    """The tunnel over REST; empty while nobody knows it."""
    answer = rest.get(f"/v1/tunnels/{TUNNEL}")
    found: dict[str, Any] = {} if answer.status_code == httpx.codes.NOT_FOUND else answer.raise_for_status().json()
    return found


def connections(rest: httpx.Client) -> int:
    """Connections that the origin reports."""
    return int((shown(rest).get("state") or {}).get("connections_established", 0))


def at_target(rest: httpx.Client, target_bps: int) -> bool:
    """Whether the last periods were decided for this target and carried it."""
    last = shown(rest)["history"][-JUDGED_PERIODS:]
    if len(last) < JUDGED_PERIODS or {one["target_bps"] for one in last} != {target_bps}:
        return False
    return statistics.fmean(one["rate_bps"] for one in last) == pytest.approx(target_bps, rel=WITHIN)


def process_of(lab: Lab, node: str) -> int:
    """The process that runs the node's end: who listens at its control socket."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(str(lab.node_directory(node) / f"tunnel-{TUNNEL}.sock"))
        pid: int = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid


def delivered(lab: Lab) -> int:
    """Packets that left the tunnel at bravo."""
    with contextlib.suppress(LabError):
        found = linkem.command(lab.node_directory("bravo") / f"tunnel-{TUNNEL}.sock", command="get")
        return int(found["counters"]["delivered_packets"])
    return 0


def left_of_it(lab: Lab, node: str) -> list[str]:
    """What a node still has of its end."""
    directory = lab.node_directory(node)
    found = [one["tunnel"] for one in json.loads((directory / "ends.json").read_text())["tunnel_ends"]]
    found += [one.name for one in directory.glob(f"tunnel-{TUNNEL}*")]
    for words in (["ip", "-o", "link"], ["ip", "route", "show", "table", "all"], ["ss", "-tanH"]):
        lines = lab.exec(node, words).stdout.splitlines()
        ended = ("TIME-WAIT", "FIN-WAIT-2")
        found += [one for one in lines if (DEVICE in one or f":{PORT} " in one) and not one.startswith(ended)]
    return found


@contextlib.contextmanager
def a_customer(lab: Lab) -> Iterator[subprocess.Popen[str]]:
    """A transfer of TCP from alpha to an address that is behind the tunnel's destination."""
    lab.exec("bravo", ["ip", "address", "replace", f"{USER_ADDRESS}/32", "dev", "lo"])
    ends = []
    try:
        served = ["iperf3", "--server", "--one-off", "--bind", USER_ADDRESS, "--port", str(USER_PORT)]
        ends.append(lab.popen("bravo", served, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        listening = ["ss", "-ltnH", "sport", "=", f":{USER_PORT}"]
        until(lambda: lab.exec("bravo", listening).stdout, "iperf3 listens")
        # From the node's own address: replies take the ordinary route, as a tunnel has one direction.
        sent = ["iperf3", "--client", USER_ADDRESS, "--port", str(USER_PORT), "--bind", lab.address("alpha")]
        sent += ["--time", "300"]
        ends.append(lab.popen("alpha", sent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield ends[-1]
    finally:
        for one in reversed(ends):
            end_process(one)
        lab.exec("bravo", ["ip", "address", "delete", f"{USER_ADDRESS}/32", "dev", "lo"])


def test_a_tunnel_from_rest_to_packets_and_back(platform: Platform, rest: httpx.Client, lab: Lab) -> None:
    enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S)
    nodes = ("alpha", "bravo")
    path = f"/v1/tunnels/{TUNNEL}"
    try:
        for node, end in zip(nodes, stated(lab), strict=True):
            state_ends(rest, node, end)
        rest.put(path, json={"target_bps": TARGET_BPS}).raise_for_status()
        until(lambda: connections(rest) >= 1, "the origin reports a connection")
        state = shown(rest)["state"]
        assert (state["origin"], state["destination"], state["tls"]) == (*nodes, True)
        running = [process_of(lab, node) for node in nodes]
        with a_customer(lab) as customer:
            until(partial(at_target, rest, TARGET_BPS), "the tunnel carries its target", 60)
            assert delivered(lab) > 0
            rest.put(path, json={"target_bps": NEW_TARGET_BPS}).raise_for_status()
            until(partial(at_target, rest, NEW_TARGET_BPS), "it carries the new target", 60)
            told = json.loads(chart(platform.settings, "tunnels", "show", TUNNEL, "--json"))
            assert told["target_bps"] == NEW_TARGET_BPS
            assert told["state"]["origin"] == "alpha"
            assert told["state"]["last_error"] == ""
            # The same programs, and the same connection of the customer, carried both.
            assert [process_of(lab, node) for node in nodes] == running
            assert customer.poll() is None
        # Without its destination the tunnel says so, and where to look.
        state_ends(rest, "bravo")
        until(lambda: "reports nothing" in shown(rest)["reason"], "REST says what is wrong", SILENCE_LIMIT_S)
    finally:
        rest.delete(path)
        for node in nodes:
            state_ends(rest, node)
    for node in nodes:
        until(lambda node=node: not left_of_it(lab, node), f"nothing is left at {node}")  # type: ignore[misc]
    until(lambda: not shown(rest), "nobody knows it any more", FORGOTTEN_LIMIT_S)
    assert [one["tunnel_ends"] for one in fetch(rest, "/v1/nodes")["items"]] == [[], [], [], []]
