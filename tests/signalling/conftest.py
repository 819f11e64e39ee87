"""A lab of three nodes in a row for the tests of in-band signalling; alpha sends, bravo receives, mid is between."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.experiments import signal_lab
from chart_lab.network import Lab
from chart_lab.topology import Impairment
from support.signals import DELAY_MS, IPV6, PORT, RATE_BPS, Flow, Start


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """100 Mb/s, 10 ms one way per link; IPv6 beside IPv4."""
    topology = signal_lab.line_topology(("alpha", "mid", "bravo"), rate_mbit=RATE_BPS / 1e6, delay_ms=DELAY_MS)
    directory: Path = tmp_path_factory.mktemp("labs")
    with Lab(topology, f"t{secrets.token_hex(3)}", state_dir=directory) as built:
        _add_ipv6(built)
        yield built


def _add_ipv6(lab: Lab) -> None:
    """One address per node on lo, routes along the row through the interfaces (TUN has no neighbours)."""
    ways = {
        "alpha": {"mid": "to-mid", "bravo": "to-mid"},
        "mid": {"alpha": "to-alpha", "bravo": "to-bravo"},
        "bravo": {"alpha": "to-mid", "mid": "to-mid"},
    }
    for node, routes in ways.items():
        lab.exec(node, ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.all.forwarding=1"])
        lab.exec(node, ["ip", "-6", "address", "add", f"{IPV6[node]}/128", "dev", "lo", "nodad"])
        for other, interface in routes.items():
            lab.exec(node, ["ip", "-6", "route", "add", IPV6[other], "dev", interface])


@pytest.fixture
def signals(lab: Lab) -> signal_lab.Signals:
    """alpha asks for all it may have for every flow to PORT."""
    return signal_lab.Signals(
        lab.topology,
        asks={"alpha": [signal_lab.ask(port=PORT, available_bps=10**12)]},
        more_addresses={node: [f"{address}/128"] for node, address in IPV6.items()},
    )


@pytest.fixture
def flow(lab: Lab) -> Iterator[Start]:
    """Starts flows that end with the test."""
    started: list[Flow] = []

    def start(**options: object) -> Flow:
        started.append(Flow(lab, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def no_options(lab: Lab) -> Iterator[None]:
    """The link between mid and bravo drops every packet with IP options, as half of the Internet's paths do."""
    lab.impair("mid-bravo", Impairment(drop_options=True))
    yield
    lab.impair("mid-bravo", Impairment(drop_options=False))
