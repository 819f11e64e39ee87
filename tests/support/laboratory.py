"""A whole platform of its own on free ports, and the lab `demo` on it: what fault and acceptance tests run against."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from chart_lab.network import Lab
from chart_lab.platform.laboratory import chart, wait_ready
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.stack import Platform

PORTS = 250


def free_base(span: int = PORTS) -> int:
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


@contextlib.contextmanager
def running_platform(directory: Path, **more: Any) -> Iterator[Platform]:
    """Broker, database and services with their state in a directory; afterwards nothing of them is left. ``more``:
    settings that shall differ from the defaults.

    CHART_TEST_LOGS names a directory to which their logs are copied first.
    """
    base = free_base()
    platform = Platform(
        PlatformSettings(
            state_dir=directory,
            kafka_port=base,
            kafka_node_port=base + 1,
            kafka_controller_port=base + 2,
            postgres_port=base + 3,
            gateway_port=base + 4,
            service_port_base=base + 10,
            **more,
        )
    )
    try:
        platform.up(print)
        yield platform
    finally:
        if keep := os.environ.get("CHART_TEST_LOGS"):
            shutil.copytree(platform.settings.platform_dir / "logs", keep, dirs_exist_ok=True)
        platform.down(purge=True)


def operator_token(platform: Platform) -> str:
    """An operator's token from the development issuer."""
    answer = httpx.post(
        f"{platform.settings.gateway_url}/dev-issuer/token", json={"subject": "tester", "roles": ["operator"]}
    )
    answer.raise_for_status()
    return str(answer.json()["access_token"])


def operator(platform: Platform) -> httpx.Client:
    """REST client of an operator."""
    headers = {"Authorization": f"Bearer {operator_token(platform)}"}
    return httpx.Client(base_url=platform.settings.gateway_url, headers=headers, timeout=10)


@contextlib.contextmanager
def running_lab(platform: Platform, rest: httpx.Client) -> Iterator[Lab]:
    """The lab `demo` with agents and pods on every node, all of them reporting."""
    settings = platform.settings
    chart(settings, "lab", "up", "demo", "--platform")
    try:
        wait_ready(rest)
        yield Lab.load("demo", state_dir=settings.state_dir / "lab")
    finally:
        chart(settings, "lab", "down", "--lab", "demo")


def established(lab: Lab, node: str, peer_filter: str) -> str:
    """What `ss` tells of a node's established TCP flows, such as those to ``dport = :5201``."""
    command = ["ss", "-tinH", "state", "established", *peer_filter.split()]
    return lab.exec(node, command).stdout
