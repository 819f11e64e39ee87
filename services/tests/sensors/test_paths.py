"""Sensors over emulated links: what they measure against what the link is, and the responder under attack."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chart.lab.network import Lab

pytestmark = pytest.mark.lab
LabMaker = Callable[..., Lab]


@contextmanager
def responder(lab: Lab, node: str, programs: Path, key_file: Path) -> Iterator[subprocess.Popen[str]]:
    """A responder in a node; its standard output carries the counters."""
    command = lab.command_line(node, [str(programs / "sensor-responder"), "--key-file", str(key_file)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        yield process
        process.terminate()


def measure(lab: Lab, programs: Path, key_file: Path, sensor: str, *arguments: str) -> dict[str, Any]:
    command = [str(programs / sensor), "--destination", lab.address("bravo"), "--key-file", str(key_file), "--json"]
    record: dict[str, Any] = json.loads(lab.exec("alpha", [*command, *arguments], timeout_s=20).stdout)
    record["values"] = {metric["metric"]: metric["value"] for metric in record["metrics"]}
    return record


@pytest.mark.parametrize("protocol", ["icmp", "udp"])
def test_ping_measures_delay_and_loss(make_lab: LabMaker, programs: Path, key_file: Path, protocol: str) -> None:
    lab = make_lab(rate_mbit=100, delay_ms=10, loss=0.1)
    with responder(lab, "bravo", programs, key_file):
        record = measure(
            lab, programs, key_file, "ping", "--protocol", protocol, "--count", "400", "--interval-ms", "2"
        )
    # Two directions of 10 ms, and of 10 % loss each: 19 % of round trips.
    assert 20_000 <= record["values"]["rtt_min_us"] < 20_500
    assert record["values"]["rtt_p95_us"] < 25_000
    assert 0.12 < record["values"]["loss_ratio"] < 0.27
    assert record["probes_sent"] == 400


@pytest.mark.parametrize(
    ("rate_mbit", "delay_ms", "loss"), [(10, 1, 0.0), (45, 1, 0.0), (100, 1, 0.0), (240, 1, 0.0), (100, 50, 0.05)]
)
def test_pathchirp_finds_the_rate_of_an_idle_link(
    make_lab: LabMaker, programs: Path, key_file: Path, rate_mbit: float, delay_ms: float, loss: float
) -> None:
    lab = make_lab(rate_mbit=rate_mbit, delay_ms=delay_ms, loss=loss)
    with responder(lab, "bravo", programs, key_file):
        records = [measure(lab, programs, key_file, "pathchirp") for _ in range(3)]
    found = statistics.median(record["values"]["available_bandwidth_bps"] for record in records)
    assert found == pytest.approx(rate_mbit * 1e6, rel=0.15)
    for record in records:
        assert record["probe_bytes"] <= 1_500_000
        assert record["ended_at_us"] - record["started_at_us"] <= 5_000_000


def test_responder_cannot_be_abused(make_lab: LabMaker, programs: Path, key_file: Path) -> None:
    lab = make_lab(rate_mbit=100, delay_ms=1)
    attacker = [sys.executable, str(Path(__file__).with_name("attacker.py")), str(key_file)]
    own = "10.1.1.1"
    with responder(lab, "bravo", programs, key_file) as process:
        told = lab.exec("alpha", [*attacker, lab.address("bravo"), own, lab.address("alpha")])
        process.send_signal(signal.SIGUSR1)
        assert process.stdout is not None
        counters = json.loads(process.stdout.readline())
    assert json.loads(told.stdout) == {
        "noise": 0,
        "wrong_key": 0,
        "flipped": 0,
        "spoofed": 0,
        "honest_hello": 1,
        "replayed_hello": 0,
        "honest_echo": 1,
        "echo_reply_authentic": 1,
        "echo_reply_bytes": 100,
        "replayed_echo": 0,
        "reply_as_request": 0,
        "redirected": 0,
    }
    # Nothing went to the third party either: two replies in all, both honest.
    assert counters["replies"] == 2
    assert counters["reply_bytes"] == 164
    assert counters["reply_bytes"] < counters["received_bytes"]
    assert counters["refused_replayed"] == 4
