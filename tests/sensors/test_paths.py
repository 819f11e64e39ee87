"""Sensors over emulated links: what they measure against what the link is, and the responder under attack."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments.traffic import Transfer
from chart_lab.network import Lab
from support.figures import Figures

pytestmark = pytest.mark.lab
LabMaker = Callable[..., Lab]


@contextmanager
def responder(lab: Lab, node: str, programs: Path, key_file: Path) -> Iterator[subprocess.Popen[str]]:
    """A responder in a node; its standard output carries the counters."""
    command = lab.command_line(node, [str(programs / "sensor-responder"), "--key-file", str(key_file)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        try:
            yield process
        finally:
            process.terminate()


# More of the same, for which `make test` has no room. They run in `make verify-all`.
MORE = pytest.mark.slow
# Trains that a slow machine spoilt are no number (docs/sensing.md); the pod measures again, and so does the test.
SPOILT_RUNS = 10


def measure(lab: Lab, programs: Path, key_file: Path, sensor: str, *arguments: str) -> dict[str, Any]:
    command = [str(programs / sensor), "--destination", lab.address("bravo"), "--key-file", str(key_file), "--json"]
    record: dict[str, Any] = json.loads(lab.exec("alpha", [*command, *arguments], timeout_s=20).stdout)
    record["values"] = {metric["metric"]: metric["value"] for metric in record["metrics"]}
    return record


def measure_unspoilt(lab: Lab, programs: Path, key_file: Path, sensor: str, *arguments: str) -> dict[str, Any]:
    for _ in range(SPOILT_RUNS):
        try:
            return measure(lab, programs, key_file, sensor, *arguments)
        except LabError as error:
            if "spoilt" not in str(error):
                raise
            told = error
    raise AssertionError(f"{SPOILT_RUNS} runs of {sensor}: {told}")


@pytest.mark.parametrize("protocol", ["icmp", pytest.param("udp", marks=MORE)])
def test_ping_measures_delay_and_loss(
    make_lab: LabMaker, programs: Path, key_file: Path, protocol: str, figures: Figures
) -> None:
    lab = make_lab(rate_mbit=100, delay_ms=10, loss=0.1)
    with responder(lab, "bravo", programs, key_file):
        record = measure(
            lab, programs, key_file, "ping", "--protocol", protocol, "--count", "400", "--interval-ms", "2"
        )
    # Two directions of 10 ms, and of 10 % loss each: 19 % of round trips.
    shortest_ms = record["values"]["rtt_min_us"] / 1e3
    figures.within("shortest round trip of 20 ms", shortest_ms, (20, 20.5), "ms", sound=(10, 40))
    figures.at_most("round trip of 20 ms, p95", record["values"]["rtt_p95_us"] / 1e3, 25, "ms", sound=500)
    figures.within("loss of 19 %", record["values"]["loss_ratio"], (0.12, 0.27), "ratio", sound=(0.1, 0.4))
    assert record["probes_sent"] == 400


@pytest.mark.parametrize(
    ("rate_mbit", "delay_ms", "loss"), [(10, 1, 0.0), (45, 1, 0.0), (100, 1, 0.0), (240, 1, 0.0), (100, 50, 0.05)]
)
def test_pathchirp_finds_the_rate_of_an_idle_link(
    make_lab: LabMaker,
    programs: Path,
    key_file: Path,
    rate_mbit: float,
    delay_ms: float,
    loss: float,
    figures: Figures,
) -> None:
    lab = make_lab(rate_mbit=rate_mbit, delay_ms=delay_ms, loss=loss)
    with responder(lab, "bravo", programs, key_file):
        records = [measure_unspoilt(lab, programs, key_file, "pathchirp") for _ in range(3)]
    found = statistics.median(record["values"]["available_bandwidth_bps"] for record in records)
    share = found / (rate_mbit * 1e6)
    figures.within("available, p50 of 3", share, (0.85, 1.15), "of the link", sound=(0.3, 3))
    for record in records:
        assert record["probe_bytes"] <= 1_500_000
    longest_s = max(record["ended_at_us"] - record["started_at_us"] for record in records) / 1e6
    figures.at_most("longest run", longest_s, 5, "s", sound=20)


@contextmanager
def held_up(lab: Lab, every_s: float, hold_s: float) -> Iterator[None]:
    """The emulator of the lab's only link is stopped now and then, as a processor that is away stops it."""
    socket = str(lab.runtime_directory)
    # Others come and go meanwhile: psutil tells no command line of those that are gone.
    found = [one.pid for one in psutil.process_iter(["cmdline"]) if socket in " ".join(one.info["cmdline"] or ())]
    assert len(found) == 1
    emulator = found[0]
    over = threading.Event()

    def hold() -> None:
        chance = random.Random(1)
        while not over.wait(chance.expovariate(1 / every_s)):
            os.kill(emulator, signal.SIGSTOP)
            over.wait(hold_s * chance.uniform(0.5, 1.5))
            os.kill(emulator, signal.SIGCONT)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("every_s", "hold_s"), [(0.06, 0.008), (0.02, 0.02)])
def test_trains_that_are_held_up_are_no_number(
    make_lab: LabMaker, programs: Path, key_file: Path, every_s: float, hold_s: float, figures: Figures
) -> None:
    lab = make_lab(rate_mbit=60, delay_ms=2)
    command = [str(programs / "pathchirp"), "--destination", lab.address("bravo"), "--key-file", str(key_file)]
    with responder(lab, "bravo", programs, key_file), held_up(lab, every_s, hold_s):
        answers = [lab.exec("alpha", [*command, "--json"], timeout_s=20, check=False) for _ in range(5)]
    records = [json.loads(answer.stdout) for answer in answers]
    told = [(record.get("metrics"), record.get("error"), record["trains_spoilt"]) for record in records]
    spoilt = sum(record["trains_spoilt"] for record in records)
    figures.at_least("trains found to be spoilt", spoilt, 3, "trains", sound=1)
    for answer, record in zip(answers, records, strict=True):
        assert record["trains_spoilt"] <= record["trains_sent"]
        if "error" in record:
            assert record["error"]["kind"] == "spoilt", told
            assert answer.returncode == 5
            assert answer.stderr.count("\n") == 1
    read = [record["metrics"][0]["value"] for record in records if "metrics" in record]
    # Without that judgement such runs read 3 to 300 % of what the link carries.
    for number, value in enumerate(read, 1):
        figures.within(f"available, run {number}", value / 60e6, (0.7, 1.3), "of the link", sound=(0.2, 2.5))


def test_traceroute_finds_the_hops_and_tells_a_change(make_lab: LabMaker, programs: Path, figures: Figures) -> None:
    lab = make_lab(("alpha", "bravo", "charlie", "delta"), delay_ms=5)
    for protocol in ("udp", "icmp"):
        command = [str(programs / "traceroute"), "--destination", lab.address("delta"), "--protocol", protocol]
        record = json.loads(lab.exec("alpha", [*command, "--json"], timeout_s=20).stdout)
        assert [hop["address"] for hop in record["hops"]] == [
            lab.address(node) for node in ("bravo", "charlie", "delta")
        ]
        for distance, hop in enumerate(record["hops"], 1):
            assert hop["distance"] == distance
            away_us = hop["rtt_us"] - distance * 10_000
            name = f"hop {distance} by {protocol}, beside its delay"
            figures.within(name, away_us / 1e3, (-2, 2), "ms", sound=(-5, 200))
        assert record["probe_bytes"] == 60 * record["probes_sent"]
    command = lab.command_line("alpha", [str(programs / "traceroute"), "--serve"])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        changes = []
        for ask in ({"id": 1}, {"id": 2}, {"id": 3, "destination": lab.address("charlie")}):
            process.stdin.write(json.dumps({"destination": lab.address("delta"), **ask}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            values = {metric["metric"]: metric["value"] for metric in answer["metrics"]}
            changes.append((values["hop_count"], values.get("path_changed")))
        process.stdin.close()
    assert changes == [(3, None), (3, 0), (2, None)]


def test_traceroute_tells_how_far_it_came(make_lab: LabMaker, programs: Path) -> None:
    lab = make_lab(("alpha", "bravo", "charlie"), delay_ms=1)
    lab.exec("bravo", ["ip", "route", "replace", "blackhole", lab.address("charlie")])
    command = [str(programs / "traceroute"), "--destination", lab.address("charlie"), "--timeout-ms", "200", "--json"]
    result = lab.exec("alpha", command, check=False)
    record = json.loads(result.stdout)
    assert result.returncode == 3
    assert record["error"]["kind"] == "unreachable"
    assert result.stderr.count("\n") == 1
    assert "metrics" not in record


@pytest.mark.parametrize("rate_mbit", [10, *(pytest.param(rate, marks=MORE) for rate in (45, 100, 240))])
def test_pathrate_and_spruce_on_an_idle_link(
    make_lab: LabMaker, programs: Path, key_file: Path, rate_mbit: float, figures: Figures
) -> None:
    lab = make_lab(rate_mbit=rate_mbit, delay_ms=1)
    with responder(lab, "bravo", programs, key_file):
        capacity = measure_unspoilt(lab, programs, key_file, "pathrate", "--trains", "40")
        found_bps = capacity["values"]["capacity_bps"]
        pairs = ("--capacity-bps", str(found_bps), "--pairs", "40")
        left = measure_unspoilt(lab, programs, key_file, "spruce", *pairs)
    capacity_share = found_bps / (rate_mbit * 1e6)
    left_share = left["values"]["available_bandwidth_bps"] / (rate_mbit * 1e6)
    figures.within("capacity by pathrate", capacity_share, (0.95, 1.05), "of the link", sound=(0.3, 3))
    figures.within("available by spruce", left_share, (0.9, 1.1), "of the link", sound=(0.2, 3))


def test_tulip_blames_the_lossy_segment(make_lab: LabMaker, programs: Path) -> None:
    lab = make_lab(("alpha", "bravo", "charlie", "delta"), delay_ms=1)
    lab.impair("bravo:to-charlie", topology.Impairment(loss=0.2))
    for node in ("bravo", "charlie", "delta"):
        # Routers that answer as often as they are asked.
        lab.exec(node, ["sysctl", "-q", "-w", "net.ipv4.icmp_ratelimit=0"])
    command = [str(programs / "tulip"), "--destination", lab.address("delta"), "--rounds", "80", "--lag-ms", "10"]
    record = json.loads(lab.exec("alpha", [*command, "--json"], timeout_s=30).stdout)
    values = {metric["metric"]: metric["value"] for metric in record["metrics"]}
    assert [hop["address"] for hop in record["hops"]] == [lab.address(n) for n in ("bravo", "charlie", "delta")]
    assert values["loss_hop"] == 2, record
    assert values["reordering_hop"] == 0
    assert 0.1 < values["round_trip_loss_ratio"] < 0.32
    assert record["hops"][0]["loss_ratio"] == 0
    assert record["method"] in ("ip-id", "ttl")


def test_tcp_rtt_sees_live_connections(make_lab: LabMaker, programs: Path, figures: Figures) -> None:
    lab = make_lab(rate_mbit=50, delay_ms=10, loss=0.02)
    transfer = Transfer(lab, "alpha", "bravo", duration_s=3, congestion="cubic")
    try:
        command = [str(programs / "tcp-rtt"), "--destination", lab.address("bravo"), "--duration-ms", "1500", "--json"]
        record = json.loads(lab.exec("alpha", command).stdout)
    finally:
        transfer.close()
    values = {metric["metric"]: metric["value"] for metric in record["metrics"]}
    assert values["rtt_min_us"] <= values["rtt_us"]
    figures.at_least("shortest round trip of 20 ms", values["rtt_min_us"] / 1e3, 20, "ms", sound=10)
    figures.at_most("round trip of a loaded link", values["rtt_us"] / 1e3, 200, "ms", sound=2000)
    figures.within("loss of 2 %", values["loss_ratio"], (0.002, 0.1), "ratio", sound=(0.0001, 0.5))
    assert record["probe_bytes"] == 0
    nobody = lab.exec(
        "alpha", [str(programs / "tcp-rtt"), "--destination", "10.1.1.9", "--duration-ms", "10"], check=False
    )
    assert nobody.returncode == 1
    assert nobody.stderr == "tcp-rtt: no established TCP connection to 10.1.1.9 has a round-trip time\n"


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
