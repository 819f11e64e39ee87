"""chart-tunnel between two nodes of the lab: users' packets of both IP versions, live changes of m, ends that die."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import itm_tunnel
from chart_lab.experiments.itm_tunnel import Tunnel, await_state
from chart_lab.network import Lab
from chart_lab.programs import program
from support.figures import Figures

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    loaded = topology.load("two-node")
    link = loaded.links[0].model_copy(update={"rate_mbit": 20.0, "delay_ms": 5.0})
    directory = tmp_path_factory.mktemp("labs")
    with Lab(loaded.model_copy(update={"links": [link]}), f"t{secrets.token_hex(3)}", state_dir=directory) as up:
        yield up


@pytest.fixture
def tunnel(lab: Lab) -> Iterator[Tunnel]:
    with Tunnel(lab, "alpha", "bravo", origin_options=["--period-ms", "100"]) as up:
        yield up


def stream(tunnel: Tunnel, packets: int, rate_pps: int, address: str) -> tuple[Any, Any]:
    receiver = itm_tunnel.traffic(tunnel.lab, "bravo", "count", "--listen", f"{address}:6000")
    sender = itm_tunnel.traffic(
        *(tunnel.lab, "alpha", "flood", "--connect", f"{address}:6000"),
        *("--count", str(packets), "--rate-pps", str(rate_pps)),
    )
    return sender, receiver


def received(tunnel: Tunnel, sender: Any, receiver: Any, packets: int) -> dict[str, int]:
    sender.wait(60)
    itm_tunnel.finish(sender)
    before = tunnel.get()["counters"]["offered_packets"]
    assert before >= packets
    await_state(lambda: tunnel.get()["gauges"]["queue_packets"] == 0, "an empty queue")

    def arrived() -> bool:
        receiver.stdin.write("?\n")
        receiver.stdin.flush()
        return bool(json.loads(receiver.stdout.readline())["received"] >= packets)

    await_state(arrived, f"{packets} packets")
    result: dict[str, int] = json.loads(itm_tunnel.finish(receiver))
    return result


def test_a_limit_holds_until_m_is_set_without_one(tunnel: Tunnel, figures: Figures) -> None:
    limit_bps = 2_000_000
    with pytest.raises(LabError, match="wants connections"):
        tunnel.set(limit_bps=limit_bps)
    tunnel.set(connections=3, limit_bps=limit_bps)
    receiver = itm_tunnel.traffic(tunnel.lab, "bravo", "count", "--listen", f"{itm_tunnel.USER_ADDRESS}:6000")
    sender = itm_tunnel.traffic(
        *(tunnel.lab, "alpha", "flood", "--connect", f"{itm_tunnel.USER_ADDRESS}:6000", "--rate-pps", "1000")
    )

    def rate_bps(seconds: float) -> float:
        before, began_s = tunnel.get("destination")["counters"]["received_bytes"], time.monotonic()
        time.sleep(seconds)
        after, ended_s = tunnel.get("destination")["counters"]["received_bytes"], time.monotonic()
        return float(8 * (after - before) / (ended_s - began_s))

    time.sleep(0.5)
    share = rate_bps(2) / limit_bps
    figures.within("carried under a limit", share, (0.95, 1.05), "of the limit", sound=(0.4, 1.5))
    assert tunnel.get()["limit_bps"] == limit_bps
    tunnel.set(connections=3)
    assert tunnel.get()["limit_bps"] == 0
    time.sleep(0.5)
    free = rate_bps(1) / limit_bps
    figures.at_least("carried without it", free, 4, "of the limit", sound=2)
    itm_tunnel.finish(sender)
    itm_tunnel.finish(receiver)


@pytest.mark.parametrize("address", [itm_tunnel.USER_ADDRESS, f"[{itm_tunnel.USER_ADDRESS_V6}]"], ids=["ipv4", "ipv6"])
def test_nothing_is_lost_or_reordered_while_m_changes(tunnel: Tunnel, address: str) -> None:
    packets = 3000
    sender, receiver = stream(tunnel, packets, 1000, address)
    for wanted in (8, 2, 12, 1, 5):
        tunnel.set(connections=wanted)
        await_state(lambda wanted=wanted: tunnel.get()["connections"]["established"] == wanted, f"{wanted} connections")
    seen = received(tunnel, sender, receiver, packets)
    assert seen == {"received": packets, "reordered": 0, "highest": packets - 1}
    counters = tunnel.get()["counters"]
    assert counters["dropped_packets"] == 0
    assert counters["connections_broken"] == 0
    assert counters["connection_changes"] >= 7 + 6 + 10 + 11 + 4
    await_state(lambda: tunnel.get()["connections"]["draining"] == 0, "the end of draining")
    assert tunnel.get("destination")["counters"]["skipped_packets"] == 0


def test_the_report_says_what_arrived(tunnel: Tunnel) -> None:
    sender, receiver = stream(tunnel, 500, 1000, itm_tunnel.USER_ADDRESS)
    received(tunnel, sender, receiver, 500)
    await_state(lambda: tunnel.get()["report"]["received_packets_total"] >= 500, "a report of all packets")
    state = tunnel.get()
    # 1200 bytes of the user, 28 of UDP and IP, 12 of the frame.
    assert state["report"]["received_bytes_total"] >= 500 * 1240
    assert 80_000 <= state["report"]["interval_us"] <= 1_000_000
    window = state["windows"][0]
    assert window["cwnd_segments"] >= 2
    assert window["rtt_us"] >= 10_000
    assert 1000 <= window["mss_bytes"] <= 1460


def test_a_lost_lease_decays_to_one_connection(tunnel: Tunnel) -> None:
    tunnel.set(connections=6, lease_ms=300)
    await_state(lambda: tunnel.get()["connections"]["established"] == 6, "six connections")
    await_state(lambda: tunnel.get()["connections"]["established"] == 1, "the end of the lease")
    assert tunnel.get()["counters"]["leases_lost"] == 1
    tunnel.set(connections=3)
    await_state(lambda: tunnel.get()["connections"]["established"] == 3, "three connections")


def test_a_killed_end_comes_back(tunnel: Tunnel) -> None:
    tunnel.set(connections=4)
    await_state(lambda: tunnel.get()["connections"]["established"] == 4, "four connections")
    tunnel.kill("destination")
    await_state(lambda: tunnel.get()["connections"]["established"] == 0, "the loss")
    await_state(lambda: "refused" in tunnel.get()["last_error"], "a clear error")
    tunnel.start("destination")
    await_state(lambda: tunnel.get()["connections"]["established"] == 4, "four connections again")
    tunnel.kill("origin")
    tunnel.start("origin")
    await_state(lambda: tunnel.get()["connections"]["established"] == 1, "the new origin's connection")
    sender, receiver = stream(tunnel, 200, 1000, itm_tunnel.USER_ADDRESS)
    assert received(tunnel, sender, receiver, 200)["reordered"] == 0
    assert tunnel.get("destination")["counters"]["sessions"] == 2


def test_refusals_are_sentences(tunnel: Tunnel) -> None:
    with pytest.raises(LabError, match="whole number from 1 to 256"):
        tunnel.set(connections=0)
    with pytest.raises(LabError, match="no such class"):
        tunnel.set(weights={"nobody": 2})
    tunnel.set(weights={"everybody": 9})
    assert tunnel.get()["classes"][0]["weight"] == 9
    second = [str(program("dataplane/chart-tunnel")), "destination", "--control", "/run/chart-test-itm.sock"]
    ended = tunnel.lab.exec(
        "bravo", [*second, "--listen", f"{tunnel.lab.address('bravo')}:{itm_tunnel.PORT}"], check=False
    )
    assert ended.returncode == 1
    assert "Address already in use" in ended.stderr


def test_status_prints_json_and_metrics(tunnel: Tunnel) -> None:
    command = [str(program("dataplane/chart-tunnel")), "--status", "--control", str(tunnel.socket("origin"))]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    assert "# TYPE chart_tunnel_connections_opened_total counter" in text
    assert "\nchart_tunnel_connections_established 1\n" in text
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=10).stdout
    assert json.loads(shown)["role"] == "origin"
    missing = [*command[:-1], str(Path("/run/chart-nobody.sock"))]
    assert subprocess.run(missing, capture_output=True, check=False, timeout=10).returncode == 1
