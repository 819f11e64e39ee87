"""host and snmp: the same protocol as the sensors in C, the machine's own numbers, and a real SNMP agent."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart.sensors.program import SensorError
from chart.sensors.snmp import Reading, choose, conclude, difference


def serve(program: Path, *lines: str) -> dict[Any, dict[str, Any]]:
    told = subprocess.run(
        [program, "--serve"], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=30, check=True
    )
    return {answer.get("id"): answer for answer in map(json.loads, told.stdout.splitlines())}


def test_host_tells_what_the_machine_is_doing(programs: Path) -> None:
    name = Path("/proc/self/comm").read_text().strip()
    answers = serve(
        programs / "host",
        json.dumps({"id": 1, "duration_ms": "100", "process": name, "destination": "127.0.0.1"}),
        '{"id": 2, "declare": true}',
        '{"id": 3, "duration_ms": 1}',
        '{"id": 4, "nonsense": 1}',
        "no json",
    )
    values = {metric["metric"]: metric["value"] for metric in answers[1]["metrics"]}
    assert 0 <= values["cpu_busy_ratio"] <= 1
    assert values["memory_total_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < values["memory_available_bytes"] < values["memory_total_bytes"]
    assert values["processes"] >= 2
    assert values["named_processes"] >= 1
    assert values["named_processes_resident_bytes"] > 1_000_000
    assert answers[1]["probe_bytes"] == 0
    assert answers[2] == {"id": 2, "probe_bytes": 0, "duration_ms": 700}
    assert "must lie between 20 and 60000" in answers[3]["error"]["message"]
    assert "unknown parameter" in answers[4]["error"]["message"]
    assert answers[None]["error"]["kind"] == "usage"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """An snmpd on loopback; its port, and a file with a version 3 user's keys."""
    found = shutil.which("snmpd") or shutil.which("/usr/sbin/snmpd")
    if found is None:
        pytest.fail("snmpd is not installed: make packages")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    configuration = tmp_path / "snmpd.conf"
    configuration.write_text(
        "rocommunity secret 127.0.0.1\n"
        "createUser watcher SHA-256 authentication-pass AES privacy-pass-word\n"
        "rouser watcher priv\n"
    )
    command = [found, "-f", "-Lo", "-C", "-c", str(configuration), f"udp:127.0.0.1:{port}"]
    environment = {**os.environ, "SNMP_PERSISTENT_DIR": str(tmp_path / "state")}
    credentials = tmp_path / "user.json"
    credentials.write_text(
        json.dumps({"user": "watcher", "authentication": "authentication-pass", "privacy": "privacy-pass-word"})
    )
    credentials.chmod(0o600)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"NET-SNMP version" in line:
                break
        yield port, credentials
        process.terminate()


def ask(programs: Path, port: int, *arguments: str) -> tuple[int, dict[str, Any]]:
    command = [str(programs / "snmp"), "--destination", "127.0.0.1", "--port", str(port), "--json", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return told.returncode, json.loads(told.stdout)


def test_snmp_reads_counters_of_a_real_agent(programs: Path, agent: tuple[int, Path]) -> None:
    port, credentials = agent
    own = ["--duration-ms", "100", "--interface", "lo"]
    status, record = ask(programs, port, "--community", "secret", *own)
    assert status == 0, record
    values = {metric["metric"]: metric["value"] for metric in record["metrics"]}
    counted = int(Path("/sys/class/net/lo/statistics/rx_bytes").read_text())
    assert 0 < values["in_bytes"] <= counted
    assert values["in_rate_bps"] >= 0
    assert record["interfaces"][0]["name"] == "lo"
    assert record["probe_bytes"] > 0
    status, record = ask(programs, port, "--credentials", str(credentials), *own)
    assert status == 0, record
    # The agent is silent to strangers.
    started_s = time.monotonic()
    status, record = ask(programs, port, "--community", "guess", "--timeout-ms", "200")
    assert status == 3
    assert record["error"]["kind"] == "unreachable"
    assert time.monotonic() - started_s < 10
    status, record = ask(programs, port, "--community", "secret", "--interface", "eth99")
    assert status == 2
    assert "there is no interface eth99; there are" in record["error"]["message"]
    credentials.chmod(0o644)
    assert ask(programs, port, "--credentials", str(credentials), *own)[0] == 4


def test_counters_wrap_and_loopbacks_do_not_count() -> None:
    assert difference("in_octets", 2**64 - 10, 5) == 15
    assert difference("in_errors", 2**32 - 1, 1) == 2
    row = {"name": "a", "type": 6, "status": 1, "speed_mbit": 100, "in_octets": 1000, "out_octets": 2**64 - 500}
    loopback = {**row, "name": "lo", "type": 24}
    down = {**row, "name": "b", "status": 2}
    assert choose({1: row, 2: loopback, 3: down}, "") == [1]
    later = {"in_octets": 126_000, "out_octets": 62_000}
    result = conclude(Reading({1: row, 2: loopback}, 10.0), Reading({1: later, 2: later}, 12.0), "")
    values = {name: value for name, value, _ in result.metrics}
    assert values["in_rate_bps"] == 500_000
    assert values["out_rate_bps"] == 250_000
    assert values["speed_bps"] == 100e6
    with pytest.raises(SensorError, match="no interface but loopbacks"):
        choose({2: loopback, 3: down}, "")
    with pytest.raises(SensorError, match="64-bit counters"):
        conclude(Reading({1: {"type": 6, "status": 1}}, 1.0), Reading({}, 2.0), "")
