"""The pure parts of the experiments: captures, what counts as full use, and that a forgery is one."""

from __future__ import annotations

import dataclasses
import random
import struct
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from chart.common import qos
from chart_lab.errors import LabError
from chart_lab.experiments import signal_abuse, signal_capture, signal_cells, signal_cost, signal_timing
from chart_lab.experiments.signal_capture import Packet
from chart_lab.experiments.signal_lab import Signals, line_topology

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
    assert first.at_s == pytest.approx(1.25)
    assert (first.length, first.ports) == (76, (40000, 5001))
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


def verdict(octets: bytes, key: bytes) -> qos.Reason:
    """What an element says that never saw a signal of this sender."""
    pair = qos.Pair()
    pair.install(1, key)
    try:
        parsed = qos.parse_ipv4(octets)
    except qos.QosError as error:
        return error.reason
    return pair.verify(parsed.signal, parsed.flow) if parsed.signal.sender == 1 else qos.Reason.UNKNOWN_SENDER


def test_forgeries_of_fresh_sequences_fail_by_their_tag() -> None:
    generator = random.Random(7)
    signals = Signals(line_topology(("alpha", "mid", "bravo")))
    kinds, key = signal_abuse.forges(signals), bytes.fromhex(signals.key(1, 2))
    assert verdict(signal_abuse.signed(key)(generator, signal_packet()), key) is qos.Reason.OK
    for kind in ("altered", "other_pair"):
        told = {verdict(kinds[kind](generator, signal_packet()), key) for _ in range(200)}
        assert qos.Reason.BAD_TAG in told
        assert qos.Reason.OK not in told


def test_the_other_carrier_has_the_same_signal() -> None:
    signals = Signals(line_topology(("alpha", "mid", "bravo")))
    octets = signal_abuse.forges(signals)["other_carrier"](random.Random(7), signal_packet(9))
    assert octets[16:20] == IPv4Address("10.0.0.2").packed
    parsed = qos.parse_shim(octets[28:])
    assert (parsed.signal.sequence, parsed.flow) == (9, FLOW)


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


def test_what_was_sent_is_told_over_time(tmp_path: Path) -> None:
    sent = signal_timing.binned(packets_at(50e6, 10.0, 10.5), 10.0, 10.6, 0.1)
    assert sent == pytest.approx((50, 50, 50, 50, 50, 0), abs=0.3)
    timing = signal_timing.Timing(5e7, 1.0, 2.0, 2.5, 0.98, 0.2, 0.5, sent)
    signal_timing.plot([timing, timing], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def result(**different: object) -> signal_cells.Result:
    """A transfer without a fault."""
    good = signal_cells.Result("plain", 10**9, 20.0, exact=True, rate_bps=4e8, rate_as_expected=True, carrier_shim=0)
    return dataclasses.replace(good, **different)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [{"exact": False}, {"rate_as_expected": False}])
def test_a_cell_that_failed_is_told(fault: dict[str, object]) -> None:
    good = {figure.name: figure.met() for figure in signal_cells.evaluate([result()], 1)}
    bad = {figure.name: figure.met() for figure in signal_cells.evaluate([result(), result(**fault)], 2)}
    assert False not in good.values()
    assert list(bad.values()).count(False) == 1


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
