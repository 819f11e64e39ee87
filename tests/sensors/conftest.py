"""Sensor programs as the pod starts them, a responder on loopback, and labs of two nodes."""

from __future__ import annotations

import itertools
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.network import Lab

SENSORS = ("ping", "traceroute", "pathchirp", "spruce", "pathrate", "tulip", "tcp-rtt", "snmp", "host")
PROGRAMS = Path(__file__).resolve().parents[2] / "build" / "sensors"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the built programs."""
    missing = [name for name in (*SENSORS, "sensor-responder") if not (PROGRAMS / name).exists()]
    if missing:
        pytest.fail(f"{', '.join(missing)} not built: make sensors")
    return PROGRAMS


@pytest.fixture
def key_file(tmp_path: Path, programs: Path) -> Path:
    """A key of this test's own."""
    path = tmp_path / "sensor.key"
    subprocess.run([programs / "sensor-responder", "--generate-key", path], check=True, timeout=10)
    return path


@pytest.fixture
def loopback_responder(programs: Path, key_file: Path) -> Iterator[int]:
    """A responder on 127.0.0.1; its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    program = str(programs / "sensor-responder")
    command = [program, "--key-file", str(key_file), "--bind", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        yield port
        process.terminate()


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Builds labs of nodes in a line (alpha and bravo) with equal links and removes them afterwards."""
    labs: list[Lab] = []

    def make(nodes: Sequence[str] = ("alpha", "bravo"), **impairment: object) -> Lab:
        ends = itertools.pairwise(nodes)
        links = [topology.Link.model_validate({"ends": pair, "rate_mbit": 100, **impairment}) for pair in ends]
        line = topology.Topology(name="line", nodes=[topology.Node(name=name) for name in nodes], links=links)
        lab = Lab(line, f"s{secrets.token_hex(3)}", state_dir=tmp_path / "labs")
        labs.append(lab)
        lab.up()
        return lab

    yield make
    for lab in labs:
        lab.down()
