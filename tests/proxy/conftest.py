"""Hosts without an agent at both ends of a long lossy link, and proxies on the nodes before it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.experiments import proxy as experiment
from chart_lab.network import Lab
from support.proxies import IPV6, Proxy, add_ipv6


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """client - near - far - server, the middle 100 Mb/s with 2 % loss and 20 ms one way; IPv6 beside IPv4."""
    topology = experiment.line(rate_mbit=100, loss=0.02, delay_ms=20)
    directory: Path = tmp_path_factory.mktemp("labs")
    with Lab(topology, f"px{secrets.token_hex(3)}", state_dir=directory) as built:
        add_ipv6(built)
        yield built


@pytest.fixture
def proxies(lab: Lab) -> Iterator[dict[str, Proxy]]:
    """A proxy at each end of the long link."""
    running = {node: Proxy(lab, node, *taken) for node, taken in experiment.TAKEN.items()}
    try:
        for proxy in running.values():
            proxy.start()
        yield running
    finally:
        for proxy in running.values():
            proxy.stop()


@pytest.fixture(params=["IPv4", "IPv6"])
def server(request: pytest.FixtureRequest, lab: Lab) -> str:
    """The server's address, of either family."""
    return lab.address("server") if request.param == "IPv4" else IPV6["server"]
