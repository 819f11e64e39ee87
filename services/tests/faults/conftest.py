"""A whole platform of its own (broker, database, services) on free ports, for tests that break it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from chart.platform.settings import PlatformSettings
from chart.platform.stack import Platform


def _free_base(span: int) -> int:
    """A port from which the next ``span`` ports are free on loopback."""
    for base in range(23000, 32000, span):
        probes = []
        try:
            for port in range(base, base + span):
                probe = socket.socket()
                probes.append(probe)
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        else:
            return base
        finally:
            for probe in probes:
                probe.close()
    msg = "no free range of ports on loopback"
    raise RuntimeError(msg)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Everything but a lab, started for one test module."""
    base = _free_base(250)
    settings = PlatformSettings(
        state_dir=tmp_path_factory.mktemp("platform"),
        kafka_port=base,
        kafka_node_port=base + 1,
        kafka_controller_port=base + 2,
        postgres_port=base + 3,
        gateway_port=base + 4,
        service_port_base=base + 10,
    )
    platform = Platform(settings)
    try:
        platform.up(print)
        yield platform
    finally:
        platform.down(purge=True)


@pytest.fixture(scope="module")
def token(platform: Platform) -> str:
    """An operator's token from the development issuer."""
    answer = httpx.post(
        f"{platform.settings.gateway_url}/dev-issuer/token", json={"subject": "tester", "roles": ["operator"]}
    )
    answer.raise_for_status()
    return str(answer.json()["access_token"])


@pytest.fixture(scope="module")
def rest(platform: Platform, token: str) -> Iterator[httpx.Client]:
    """REST client of the platform."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=platform.settings.gateway_url, headers=headers, timeout=10) as client:
        yield client


@pytest.fixture
def kill(platform: Platform) -> Callable[[str], int]:
    """Kills one program of the platform with -9; returns the pid that it had."""

    def kill_program(name: str) -> int:
        (row,) = [row for row in platform.status() if row.name == name]
        assert row.pid, f"{name} does not run: {row.state}"
        os.kill(row.pid, signal.SIGKILL)
        return row.pid

    return kill_program


@pytest.fixture
def until() -> Callable[..., None]:
    """Polls a condition to a bound; what it waited for is in the failure."""

    def wait_until(condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
        end = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < end, f"not within {limit_s} s: {what}"
            time.sleep(0.05)

    return wait_until


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return Path(__file__).resolve().parents[3]
