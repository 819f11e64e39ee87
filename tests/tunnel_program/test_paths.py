"""Connections over IPv6, and what an origin says when it cannot reach its destination."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.experiments import itm_tunnel
from chart_lab.experiments.tunnel_throughput import INTERFACE, veth_lab
from chart_lab.network import Lab
from support.waiting import until
from tunnel_program.ends import PORT, End, command

pytestmark = pytest.mark.lab
USER = itm_tunnel.USER_ADDRESS


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with veth_lab(100.0, 1) as up:
        for node, address in (("alpha", "fd00::1/64"), ("bravo", "fd00::2/64")):
            up.exec(node, ["ip", "-6", "address", "add", address, "dev", INTERFACE, "nodad"])
        up.exec("bravo", ["ip", "address", "add", f"{USER}/32", "dev", "lo"])
        yield up


def origin(lab: Lab, directory: Path, destination: str, *options: str) -> End:
    return End("origin", directory, ["--destination", destination, *options], lab, "alpha")


def destination(lab: Lab, directory: Path, listen: str, *options: str) -> End:
    return End("destination", directory, ["--listen", listen, *options], lab, "bravo")


def error(end: End, part: str) -> None:
    """Waits for a last error that says this."""
    until(lambda: part in end.get()["last_error"], f"{part!r} as the last error")


def delivered(end: End) -> int:
    """Packets that left the destination, as its last report says."""
    return int((end.get()["report"] or {}).get("delivered_packets_total", 0))


def test_connections_over_ipv6_carry_ipv4(lab: Lab, tmp_path: Path) -> None:
    where = f"[fd00::2]:{PORT}"
    with (
        destination(lab, tmp_path, where, "--peer", "fd00::1"),
        origin(lab, tmp_path, where, "--connections", "3", "--bind", "fd00::1", "--congestion", "reno") as start,
    ):
        until(lambda: start.established() == 3, "three connections")
        lab.exec("alpha", ["ip", "route", "replace", USER, "dev", "chart-itm0", "src", lab.address("alpha")])
        receiver = itm_tunnel.traffic(lab, "bravo", "count", "--listen", f"{USER}:6000")
        sender = itm_tunnel.traffic(lab, "alpha", "flood", "--connect", f"{USER}:6000", "--count", "300")
        sender.wait(20)
        itm_tunnel.finish(sender)
        until(lambda: delivered(start) >= start.get()["counters"]["sent_packets"] >= 300, "300 packets")
        assert json.loads(itm_tunnel.finish(receiver)) == {"received": 300, "reordered": 0, "highest": 299}
        assert start.get()["congestion"] == "reno"


def test_no_route(lab: Lab, tmp_path: Path) -> None:
    with origin(lab, tmp_path, f"203.0.113.9:{PORT}") as start:
        error(start, "Network is unreachable; tried again")
        assert start.get()["connections"]["waiting"] == 1
        assert start.log.read_text().count("unreachable") == 1


def test_nobody_listens_and_not_the_peer(lab: Lab, tmp_path: Path) -> None:
    where = f"{lab.address('bravo')}:{PORT}"
    with origin(lab, tmp_path, where) as start:
        error(start, "Connection refused")
        with destination(lab, tmp_path, where, "--peer", "192.0.2.77") as end:
            error(start, "closed")
            error(end, "it is not the --peer")
            assert start.established() == 0


def test_ports_that_are_taken(lab: Lab, tmp_path: Path) -> None:
    where = f"{lab.address('bravo')}:{PORT}"
    with destination(lab, tmp_path, where, "--metrics", "127.0.0.1:9410"):
        socket = f"/run/chart-{secrets.token_hex(4)}.sock"
        other = ["--control", socket, "--tun", "other0"]
        told = lab.exec("bravo", command("destination", "--listen", where, *other), check=False)
        assert (told.returncode, "Address already in use" in told.stderr) == (1, True)
        elsewhere = ["--listen", f"{lab.address('bravo')}:7401", "--metrics", "127.0.0.1:9410"]
        told = lab.exec("bravo", command("destination", *elsewhere, *other), check=False)
        assert told.returncode == 1
        assert "metrics at 127.0.0.1:9410: Address already in use" in told.stderr
        told = lab.exec("bravo", command("destination", "--listen", "[::]:7402", *other, "--tun", "lo"), check=False)
        assert told.returncode == 1
        assert "device lo" in told.stderr
        assert not Path(socket).exists()
