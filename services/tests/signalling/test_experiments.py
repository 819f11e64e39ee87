"""The pure parts of the experiments: captures, what counts as full use, and that a forgery is one."""

from __future__ import annotations

import random
import struct
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from chart.common import qos
from chart.lab.errors import LabError
from chart.lab.experiments import signal_abuse, signal_capture, signal_cost, signal_timing
from chart.lab.experiments.signal_capture import Packet
from chart.lab.experiments.signal_lab import Signals, line_topology

FLOW = qos.Flow.of_ports(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.3"), 6, (40000, 5001))
KEY = bytes(range(32))
ASKED = qos.Qos(available_rate=qos.encode_rate(50_000_000), flow_type=1, source_port=40000)


def bare_packet() -> bytes:
    """A TCP segment without data."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, 6, 0, FLOW.source.packed, FLOW.destination.packed)
    return ip + struct.pack("!HHIIBBHHH", 40000, 5001, 0, 0, 5 << 4, 2, 0, 0, 0)


def signal_packet(sequence: int = 1) -> bytes:
    """A signed request ahead of it."""
    return qos.insert_ipv4(bare_packet(), qos.Signal(ASKED, sender=1, epoch=1, sequence=sequence).sign(FLOW, KEY))


def capture_file(path: Path, packets: list[tuple[float, bytes]]) -> Path:
    """A capture of raw IP packets."""
    records = b"".join(
        struct.pack("<IIII", int(at), round(at % 1 * 1e6), len(octets), len(octets)) + octets for at, octets in packets
    )
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 256, 101) + records)
    return path


def test_a_capture_is_read_with_its_signals(tmp_path: Path) -> None:
    path = capture_file(tmp_path / "c.pcap", [(1.25, signal_packet()), (1.5, bare_packet())])
    first, second = signal_capture.read(path)
    assert (first.at_s, first.length, first.ports) == (pytest.approx(1.25), 76, (40000, 5001))
    assert first.signal is not None
    assert first.signal.signal.qos == ASKED
    assert second.signal is None
    assert second.ports == (40000, 5001)


def test_no_capture_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(LabError, match="no capture"):
        list(signal_capture.read(tmp_path / "empty"))


@pytest.mark.parametrize("kind", [kind for kind in signal_abuse.FORGES if kind != "replayed"])
def test_every_forgery_is_one(kind: str) -> None:
    generator = random.Random(7)
    for _ in range(200):
        octets = signal_abuse.FORGES[kind](generator, signal_packet())
        pair = qos.Pair()
        pair.install(1, KEY)
        try:
            parsed = qos.parse_ipv4(octets)
        except qos.QosError:
            continue
        assert pair.verify(parsed.signal, parsed.flow) != qos.Reason.OK or parsed.signal.sender != 1


def test_abuse_is_judged_by_acceptance() -> None:
    tried, accepted, _ = signal_abuse.evaluate(100_000, 1, 0)
    assert tried.met() is True
    assert accepted.met() is False


def packets_at(rate_bps: float, start_s: float, end_s: float) -> list[Packet]:
    """Full packets at a rate."""
    gap_s = 1500 * 8 / rate_bps
    return [Packet(start_s + gap_s * number, 1500, b"") for number in range(int((end_s - start_s) / gap_s))]


def test_full_use_begins_where_the_rate_does() -> None:
    slow, fast = packets_at(5e6, 0.0, 0.1), packets_at(50e6, 0.1, 0.3)
    assert signal_timing.full_use_s(slow + fast, 50e6, 0.02) == pytest.approx(0.1, abs=0.003)
    with pytest.raises(LabError, match="never in full use"):
        signal_timing.full_use_s(slow, 50e6, 0.02)


def test_the_worst_release_counts() -> None:
    timings = [signal_timing.Timing(5e7, 1.0, 2.0, 2.5, overshoot) for overshoot in (0.9, 1.2, 1.0)]
    figures = {figure.name: figure for figure in signal_timing.evaluate(timings)}
    assert figures["release_overshoot"].value == 1.2
    assert figures["release_overshoot"].met() is False
    assert figures["rate_known_rtts"].met() is True


def test_cost_compares_pairs() -> None:
    runs = [signal_cost.Run(*run) for run in (("without", 10e9), ("with", 9e9), ("with", 6e9), ("without", 5e9))]
    assert signal_cost.iperf_ratio(runs) == pytest.approx(1.05)


def test_next_elements_skip_nodes_that_are_none() -> None:
    topology = line_topology(("alpha", "mid", "bravo"))
    assert Signals(topology).next_element("alpha", "bravo") == "mid"
    ends = Signals(topology, elements=("alpha", "bravo"))
    assert ends.next_element("alpha", "bravo") == "bravo"
    assert ends.next_element("alpha", "mid") is None
    assert {key["sender"] for key in ends.file("alpha")["keys"]} == {1, 3}
