"""The signalling codec: the vectors that the C side reads too, every rate word, round trips, and the dissector."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.common import qos
from chart.common.qos import Flow, Pair, Qos, QosError, Reason, ReplayWindow, Signal

ROOT = Path(__file__).parents[3]
CODEC = ROOT / "dataplane/lib/qos"
VECTORS: dict[str, Any] = json.loads((CODEC / "vectors.json").read_text())
PARSERS = {"ipv4": qos.parse_ipv4, "ipv6": qos.parse_ipv6, "shim": qos.parse_shim}
KEY = bytes(range(32))

# A busy machine must not fail an example; every test has a deadline anyway.
unhurried = settings(deadline=None)

words = st.integers(0, 0x7FFF)
structures = st.builds(
    Qos,
    guaranteed_rate=words,
    available_rate=words,
    preemption_priority=st.integers(0, 255),
    delay_priority=st.integers(0, 255),
    direction=st.integers(0, 1),
    status=st.integers(0, 6),
    flow_type=st.integers(0, 15),
    charging=st.integers(0, 15),
    burst_tolerance=st.integers(0, 15),
    service=st.integers(0, 3),
    lowered=st.integers(0, 1),
    source_port=st.integers(0, 65535),
)
signals = st.builds(
    Signal,
    structures,
    sender=st.integers(0, 65535),
    epoch=st.integers(0, 255),
    sequence=st.integers(0, qos.SEQUENCE_MAX),
    tag=st.binary(min_size=16, max_size=16),
)
ports = st.tuples(st.integers(0, 65535), st.integers(0, 65535))
transports = st.sampled_from([6, 17, 33, 132, 136])


def flows_of(addresses: st.SearchStrategy[Any]) -> st.SearchStrategy[Flow]:
    return st.builds(Flow.of_ports, addresses, addresses, transports, ports)


flows = st.one_of(flows_of(st.ip_addresses(v=4)), flows_of(st.ip_addresses(v=6)))


def bare_packet(flow: Flow, payload: bytes) -> bytes:
    if flow.family == 4:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64, flow.protocol, 0)
        return head + flow.source.packed + flow.destination.packed + payload
    head = struct.pack(">IHBB", 6 << 28, len(payload), flow.protocol, 64)
    return head + flow.source.packed + flow.destination.packed + payload


def test_vectors_are_what_their_program_prints() -> None:
    printed = subprocess.run([sys.executable, CODEC / "make_vectors.py"], capture_output=True, check=True).stdout
    assert json.loads(printed) == VECTORS


def test_errors_have_the_same_numbers_in_the_header() -> None:
    header = (CODEC / "qos_types.h").read_text()
    assert VECTORS["errors"] == {reason.name: int(reason) for reason in Reason}
    for reason in Reason:
        assert f"CHART_QOS_{reason.name} = {int(reason)}," in header


@pytest.mark.parametrize("vector", VECTORS["rates"], ids=lambda vector: vector["rate_bps"])
def test_rate_vectors(vector: dict[str, str]) -> None:
    word = int(vector["word"], 16)
    assert qos.encode_rate(int(vector["rate_bps"])) == word
    assert qos.decode_rate(word) == int(vector["decoded_bps"])


@pytest.mark.parametrize(
    ("rate_bps", "word"), [(82_000, 0x5206), (32_000_000, 0x7D0E), (100_000_000, 0x61B0), (10**9, 0x7A13)]
)
def test_rates_of_the_design(rate_bps: int, word: int) -> None:
    assert qos.encode_rate(rate_bps) == word


def test_every_rate_word() -> None:
    rates = []
    for word in range(0x10000):
        rate_bps = qos.decode_rate(word)
        if word & 0x4000:
            assert qos.encode_rate(rate_bps) == word & 0x7FFF
        else:
            assert rate_bps == 0
        assert qos.decode_rate(qos.encode_rate(rate_bps)) == rate_bps
        if word & 0xC000 == 0x4000:
            rates.append((qos.rate_order(word), rate_bps))
    rates.sort()
    assert [order for order, _ in rates] == list(range(1, 512 * 32 + 1))
    for (_, lower_bps), (_, upper_bps) in pairwise(rates):
        assert lower_bps < upper_bps
        assert (upper_bps - 1 - lower_bps) / (upper_bps - 1) < 0.002  # the worst rate lies just below the next word
        assert qos.decode_rate(qos.encode_rate(upper_bps - 1)) == lower_bps


@unhurried
@given(st.integers(0, 2 * qos.RATE_MAX_BPS))
def test_a_rate_is_never_rounded_up(rate_bps: int) -> None:
    assert qos.decode_rate(qos.encode_rate(rate_bps)) <= rate_bps


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        qos.encode_rate(-1)


@pytest.mark.parametrize("vector", VECTORS["hmac"], ids=lambda vector: vector["name"])
def test_tags_of_rfc4868(vector: dict[str, str]) -> None:
    digest = hmac.new(bytes.fromhex(vector["key"]), bytes.fromhex(vector["data"]), hashlib.sha256).hexdigest()
    assert digest[:32] == vector["tag"]


@pytest.mark.parametrize("vector", VECTORS["packets"], ids=lambda vector: vector["name"])
def test_packet_vectors(vector: dict[str, Any]) -> None:
    octets, bare = bytes.fromhex(vector["octets"]), bytes.fromhex(vector["bare"])
    parsed = PARSERS[vector["carrier"]](octets)
    assert {field: getattr(parsed.signal.qos, field) for field in vector["qos"]} == vector["qos"]
    assert parsed.signal.tag.hex() == vector["tag"]
    assert parsed.signal.verify(parsed.flow, bytes.fromhex(vector["key"]))
    assert parsed.flow.selector.hex() == vector["flow"]["selector"]
    assert parsed.flow.protocol == vector["flow"]["protocol"]
    assert octets[parsed.signal_offset :].startswith(parsed.signal.pack())
    if vector["carrier"] == "shim":
        assert qos.build_shim(parsed.signal, parsed.flow) == octets
    elif vector["carrier"] == "ipv4":
        assert qos.insert_ipv4(bare, parsed.signal) == octets
        assert len(octets) == len(bare) + qos.IPV4_OPTION_OCTETS
    else:
        assert qos.insert_ipv6(bare, parsed.signal) == octets
        assert len(octets) == len(bare) + qos.IPV6_HOP_OCTETS


@pytest.mark.parametrize("vector", VECTORS["malformed"], ids=lambda vector: f"{vector['carrier']} {vector['name']}")
def test_malformed_vectors(vector: dict[str, str]) -> None:
    with pytest.raises(QosError) as caught:
        PARSERS[vector["carrier"]](bytes.fromhex(vector["octets"]))
    assert caught.value.reason.name == vector["error"]


@unhurried
@given(signals)
def test_signals_round_trip(signal: Signal) -> None:
    octets = signal.pack()
    assert len(octets) == qos.SIGNAL_OCTETS
    assert Signal.unpack(octets) == signal


@unhurried
@given(flows, signals, st.binary(min_size=4, max_size=40))
def test_carriers_round_trip(flow: Flow, signal: Signal, rest: bytes) -> None:
    insert, parse = (qos.insert_ipv4, qos.parse_ipv4) if flow.family == 4 else (qos.insert_ipv6, qos.parse_ipv6)
    packet = insert(bare_packet(flow, flow.selector + rest), signal)
    parsed = parse(packet)
    assert (parsed.signal, parsed.flow) == (signal, flow)
    assert packet.endswith(flow.selector + rest)
    shim = qos.parse_shim(qos.build_shim(signal, flow))
    assert (shim.signal, shim.flow) == (signal, flow)


@unhurried
@given(st.binary(max_size=200), st.sampled_from(sorted(PARSERS)))
def test_noise_is_refused_with_a_reason(octets: bytes, carrier: str) -> None:
    try:
        parsed = PARSERS[carrier](octets)
    except QosError:  # and nothing else
        return
    assert octets[parsed.signal_offset :].startswith(parsed.signal.pack())


@unhurried
@given(flows, signals, st.integers(0, 8 * (qos.SIGNAL_OCTETS + 8) - 1))
def test_any_flipped_bit_breaks_the_tag(flow: Flow, signal: Signal, bit: int) -> None:
    octets = bytearray(qos.build_shim(signal.sign(flow, KEY), flow))
    octets[8 + bit // 8] ^= 1 << bit % 8  # signal, selector and the first octets of the source
    try:
        parsed = qos.parse_shim(bytes(octets))
    except QosError:
        return
    assert not parsed.signal.verify(parsed.flow, KEY)


def test_lowering_sets_m_only_when_it_changes_something() -> None:
    asked = Qos(guaranteed_rate=qos.encode_rate(10**6), available_rate=qos.encode_rate(10**8))
    assert asked.lower(qos.RATE_MAX, qos.RATE_MAX) is asked
    lowered = asked.lower(0, qos.encode_rate(10**7))
    assert (lowered.guaranteed_rate, lowered.lowered) == (0, 1)
    assert qos.decode_rate(lowered.available_rate) == pytest.approx(10**7, rel=0.002)
    assert lowered.service == asked.service


def test_no_room() -> None:
    flow = Flow.of_ports(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, (1, 2))
    signal = Signal(Qos())
    twice = qos.insert_ipv4(bare_packet(flow, bytes(8)), signal)
    six = Flow.of_ports(IPv6Address("::1"), IPv6Address("::2"), 17, (1, 2))
    twice6 = qos.insert_ipv6(bare_packet(six, bytes(8)), signal)
    for insert, packet, reason in (
        (qos.insert_ipv4, twice, Reason.NO_ROOM),
        (qos.insert_ipv6, twice6, Reason.NO_ROOM),
        (qos.insert_ipv4, twice6, Reason.NOT_IP),
        (qos.insert_ipv6, twice, Reason.NOT_IP),
        (qos.insert_ipv4, bare_packet(flow, bytes(65535 - 20 - 35)), Reason.NO_ROOM),
        (qos.insert_ipv6, bare_packet(six, bytes(65535 - 39)), Reason.NO_ROOM),
    ):
        with pytest.raises(QosError) as caught:
            insert(packet, signal)
        assert caught.value.reason is reason


def test_fields_that_do_not_fit_are_refused() -> None:
    for broken in (Qos(burst_tolerance=16), Qos(guaranteed_rate=0x8000), Qos(source_port=-1)):
        with pytest.raises(ValueError, match="does not fit"):
            broken.pack()
    flow = Flow(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 1)
    with pytest.raises(ValueError, match="32 octets"):
        Signal(Qos()).sign(flow, b"short")


def test_replay_vectors() -> None:
    window = ReplayWindow()
    for step in VECTORS["replay"]:
        assert window.check(step["sequence"]).name == step["result"]
        assert window.accept(step["sequence"]).name == step["result"]


@unhurried
@given(st.lists(st.integers(0, 20_000), max_size=300))
def test_replay_window_is_a_set(sequences: list[int]) -> None:
    window, accepted = ReplayWindow(), set[int]()
    for sequence in sequences:
        highest = max(accepted, default=0)
        if sequence == 0 or (sequence <= highest and highest - sequence >= qos.REPLAY_WINDOW):
            expected = Reason.TOO_OLD
        else:
            expected = Reason.REPLAYED if sequence in accepted else Reason.OK
        assert window.accept(sequence) is expected
        if expected is Reason.OK:
            accepted.add(sequence)


def test_sequences_and_epochs() -> None:
    assert qos.next_sequence(0) == 1
    with pytest.raises(QosError, match="EXHAUSTED"):
        qos.next_sequence(qos.SEQUENCE_MAX)
    assert [qos.epoch_due(last) for last in ((1 << 23) - 1, 1 << 23)] == [False, True]

    flow = Flow(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 1)
    signal = Signal(Qos(), sender=1, epoch=5, sequence=9).sign(flow, KEY)
    pair = Pair()
    assert pair.verify(signal, flow) is Reason.UNKNOWN_EPOCH
    pair.install(5, KEY)
    with pytest.raises(QosError, match="EPOCH_IN_USE"):
        pair.install(5, KEY)
    assert pair.verify(replace(signal, tag=bytes(16)), flow) is Reason.BAD_TAG
    assert pair.verify(signal, flow) is Reason.OK
    assert pair.verify(signal, flow) is Reason.REPLAYED
    pair.install(6, KEY)
    pair.install(7, KEY)
    assert pair.verify(signal, flow) is Reason.UNKNOWN_EPOCH
    pair.retire(7)
    with pytest.raises(QosError, match="UNKNOWN_EPOCH"):
        pair.retire(7)


def write_pcap(path: Path, packets: list[bytes]) -> None:
    """A capture of raw IP packets (link type 101)."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for second, packet in enumerate(packets):
            file.write(struct.pack("<IIII", second, 0, len(packet), len(packet)) + packet)


def tshark(capture: Path, *arguments: str) -> str:
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    command = ["tshark", "-r", str(capture), "-X", f"lua_script:{ROOT / 'tools/wireshark/chart.lua'}", *arguments]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert "Lua" not in done.stderr
    return done.stdout


def in_udp(payload: bytes) -> bytes:
    """The shim's datagram between two elements."""
    flow = Flow.of_ports(ip_address("192.0.2.1"), ip_address("192.0.2.2"), 17, (qos.SHIM_PORT, qos.SHIM_PORT))
    return bare_packet(flow, flow.selector + struct.pack(">HH", 8 + len(payload), 0) + payload)


def test_dissector_shows_every_carrier(tmp_path: Path) -> None:
    vectors = VECTORS["packets"]
    octets = [bytes.fromhex(vector["octets"]) for vector in vectors]
    packets = [in_udp(o) if v["carrier"] == "shim" else o for v, o in zip(vectors, octets, strict=True)]
    packets.append(bytes.fromhex(vectors[0]["bare"]))  # carries no signal
    write_pcap(tmp_path / "signals.pcap", packets)
    fields = ["guaranteed_rate_bps", "available_rate_bps", "status", "service", "sequence", "sender", "tag", "lowered"]
    columns = [argument for field in fields for argument in ("-e", f"chart.{field}")]
    shown = tshark(tmp_path / "signals.pcap", "-Y", "chart", "-T", "fields", *columns).splitlines()
    assert len(shown) == len(vectors)
    for line, vector in zip(shown, vectors, strict=True):
        values = dict(zip(fields, line.split("\t"), strict=True))
        structure = vector["qos"]
        assert int(values["guaranteed_rate_bps"]) == qos.decode_rate(structure["guaranteed_rate"])
        assert int(values["available_rate_bps"]) == qos.decode_rate(structure["available_rate"])
        for field in ("status", "service", "lowered"):
            assert int(values[field]) == structure[field]
        assert int(values["sequence"]) == vector["sequence"]
        assert int(values["sender"]) == vector["sender"]
        assert values["tag"].replace(":", "") == vector["tag"]


def test_dissector_marks_malformed_signals_and_survives_all(tmp_path: Path) -> None:
    vectors = [vector for vector in VECTORS["malformed"] if vector["octets"]]
    octets = [bytes.fromhex(vector["octets"]) for vector in vectors]
    packets = [in_udp(o) if v["carrier"] == "shim" else o for v, o in zip(vectors, octets, strict=True)]
    write_pcap(tmp_path / "malformed.pcap", packets)
    shown = tshark(tmp_path / "malformed.pcap", "-Y", "chart.malformed", "-T", "fields", "-e", "frame.number")
    marked = {vectors[int(number) - 1]["name"] for number in shown.split()}
    assert {"version 2", "status 7", "reserved bit of the guaranteed rate", "35 octets", "one octet long"} <= marked
    assert not marked & {"no options", "another option", "router alert only", "another datagram"}
