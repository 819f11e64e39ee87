"""Customers share the tunnel by weight, a customer who floods loses his own; applications from files; metrics."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chart_lab import linkem, topology
from chart_lab.errors import LabError
from chart_lab.experiments import itm_tunnel
from chart_lab.experiments.itm_tunnel import Tunnel
from chart_lab.network import Lab
from chart_lab.programs import program
from support.waiting import until
from tunnel_program.ends import command

pytestmark = pytest.mark.lab
RATE_MBIT = 8.0
# Weights hold while the queue outlasts the pauses of the tunnel's connections: 0.4 s at this rate.
QUEUE_BYTES = 400_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    loaded = topology.load("two-node")
    link = loaded.links[0].model_copy(update={"rate_mbit": RATE_MBIT, "delay_ms": 5.0})
    directory = tmp_path_factory.mktemp("labs")
    with Lab(loaded.model_copy(update={"links": [link]}), f"t{secrets.token_hex(3)}", state_dir=directory) as up:
        yield up


def flood(lab: Lab, stack: ExitStack, port: int, rate_pps: int, size: int = 1000) -> None:
    """Numbered packets to a port of the user's address, where somebody takes them, until the test ends."""
    address = f"{itm_tunnel.USER_ADDRESS}:{port}"
    stack.callback(itm_tunnel.finish, itm_tunnel.traffic(lab, "bravo", "count", "--listen", address))
    options = ["--connect", address, "--bytes", str(size), "--rate-pps", str(rate_pps)]
    stack.callback(itm_tunnel.finish, itm_tunnel.traffic(lab, "alpha", "flood", *options))


def classes(tunnel: Tunnel) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in tunnel.get()["classes"]}


@pytest.mark.slow
def test_shares_follow_weights_and_the_flooder_loses_his_own(lab: Lab) -> None:
    weights = ["--class", "gold=3:dport=6001", "--class", "silver=1:dport=6002", "--class", "small=1:dport=6003"]
    options = [*weights, "--connections", "4", "--queue-bytes", str(QUEUE_BYTES), "--period-ms", "200"]
    with ExitStack() as stack:
        tunnel = stack.enter_context(Tunnel(lab, "alpha", "bravo", origin_options=options))
        # Each of the first two offers more than the link carries; the third far less than its share.
        flood(lab, stack, 6001, 1500)
        flood(lab, stack, 6002, 1500)
        flood(lab, stack, 6003, 20)
        until(
            lambda: min(classes(tunnel)[name]["dropped_packets"] for name in ("gold", "silver")) > 50, "full queues", 20
        )
        before = classes(tunnel)
        until(
            lambda: classes(tunnel)["gold"]["sent_packets"] - before["gold"]["sent_packets"] > 1000, "1000 packets", 20
        )
        after = classes(tunnel)
        sent = {name: after[name]["sent_bytes"] - before[name]["sent_bytes"] for name in after}
        assert 2.7 <= sent["gold"] / sent["silver"] <= 3.3
        assert after["small"]["dropped_packets"] == 0
        state = tunnel.get()
        assert state["gauges"]["queue_bytes"] <= QUEUE_BYTES
        assert state["counters"]["dropped_packets"] >= before["gold"]["dropped_packets"]
        assert state["backlogged_us"] > 100_000
        # Weights change while it runs.
        tunnel.set(weights={"gold": 1})
        # What waited already keeps its place.
        waited = classes(tunnel)["gold"]
        packets = waited["sent_packets"] + waited["queue_packets"]
        until(lambda: classes(tunnel)["gold"]["sent_packets"] > packets, "what waited", 20)
        before = classes(tunnel)
        until(lambda: classes(tunnel)["gold"]["sent_packets"] - before["gold"]["sent_packets"] > 500, "500 packets", 20)
        after = classes(tunnel)
        sent = {name: after[name]["sent_bytes"] - before[name]["sent_bytes"] for name in after}
        assert 0.8 <= sent["gold"] / sent["silver"] <= 1.25


def test_an_application_from_a_file_comes_before_the_tunnel(lab: Lab) -> None:
    # The template separates flows that are longer than its threshold: path 1, the second customer's queue.
    options = ["--application", f"{program('dataplane/itm-template.so')}=20000", "--period-ms", "100"]
    options += ["--class", "short=1:any", "--class", "long=1:dport=1"]
    with ExitStack() as stack:
        tunnel = stack.enter_context(Tunnel(lab, "alpha", "bravo", origin_options=options))
        flood(lab, stack, 6001, 100)
        until(lambda: classes(tunnel)["long"]["sent_packets"] > 20, "the flow in the queue of the long ones")
        assert classes(tunnel)["short"]["sent_packets"] >= 20
        [application] = tunnel.get()["applications"]
        assert (application["name"], application["state"]) == ("itm-template", "on")
        assert application["diverted"] > 20
        assert tunnel.get()["arrivals"]["taken"] == 0
        # A threshold that nothing reaches: new parameters while it runs.
        tunnel_command(tunnel, command="application", action="configure", name="itm-template", argument="1000000000")
        short = classes(tunnel)["short"]["sent_packets"]
        until(lambda: classes(tunnel)["short"]["sent_packets"] > short + 20, "the flow in the queue of the short ones")
        tunnel_command(tunnel, command="application", action="off", name="itm-template")
        until(lambda: tunnel.get()["arrivals"]["taken"], "packets that no application saw")
        with pytest.raises(LabError, match="no application of that name"):
            tunnel_command(tunnel, command="application", action="on", name="nobody")


def test_applications_act_at_both_ends_and_one_that_crashes_is_taken_out(lab: Lab) -> None:
    faulty = str(program("dataplane/itm-faulty.so"))
    options = ["--application", f"{faulty}=mark=0xb8", "--period-ms", "100"]
    with ExitStack() as stack:
        tunnel = stack.enter_context(Tunnel(lab, "alpha", "bravo", destination_options=options))
        flood(lab, stack, 6001, 200)
        until(lambda: tunnel.get("destination")["applications"][0]["marked"] > 20, "marked packets")
        load = {"command": "application", "name": "bad", "file": faulty, "argument": "crash=20"}
        tunnel_command(tunnel, action="load", **load)
        until(lambda: tunnel.get()["applications"][0]["state"] == "failed", "the crash")
        assert tunnel.get()["applications"][0]["fault"] == "its process ended: signal 11 (Segmentation fault)"
        delivered = tunnel.get("destination")["counters"]["delivered_packets"]
        until(lambda: tunnel.get("destination")["counters"]["delivered_packets"] > delivered + 20, "packets after it")


def test_a_file_that_is_missing_ends_the_start(lab: Lab) -> None:
    missing = command("origin", "--destination", "192.0.2.1:1", "--control", "/run/chart-test-app.sock")
    told = lab.exec("alpha", [*missing, "--application", "/nowhere.so"], check=False)
    assert told.returncode == 1
    assert "application nowhere: it did not start: /nowhere.so" in told.stderr


def tunnel_command(tunnel: Tunnel, **members: object) -> None:
    linkem.command(tunnel.socket("origin"), **members)


def fetch(lab: Lab, path: str) -> tuple[int, str]:
    """Status and body of an address of the origin's HTTP part."""
    program_text = (
        "import sys, urllib.request, urllib.error\n"
        "try: answer = urllib.request.urlopen(sys.argv[1], timeout=5)\n"
        "except urllib.error.HTTPError as error: answer = error\n"
        "print(answer.status); print(answer.read().decode())"
    )
    told = lab.exec("alpha", [sys.executable, "-c", program_text, f"http://127.0.0.1:9400{path}"]).stdout
    status, _, body = told.partition("\n")
    return int(status), body


def test_metrics_over_http(lab: Lab) -> None:
    options = ["--metrics", "127.0.0.1:9400", "--class", 'a"b=2:any']
    with Tunnel(lab, "alpha", "bravo", origin_options=options) as tunnel:
        status, shown = fetch(lab, "/metrics")
        assert status == 200
        assert "\nchart_tunnel_connections_established 1\n" in shown
        assert 'chart_tunnel_class_weight{class="a\\"b"} 2' in shown
        assert fetch(lab, "/readyz")[0] == 200
        tunnel.kill("destination")
        until(lambda: tunnel.get()["connections"]["established"] == 0, "the loss")
        status, body = fetch(lab, "/readyz")
        assert status == 503
        assert "connection" in json.loads(body)["reason"]
