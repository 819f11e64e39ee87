"""Write vectors.json, which the C and the Python tests of the signalling codec both read.

`python make_vectors.py > vectors.json`. The tests compare the file with what this program prints, so a change of the
wire format shows in the file. Rates are computed here from exact fractions, tags by Python's hmac over a message put
together by hand; neither takes the codec's word for it. Packets come from the Python codec.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import sys
from dataclasses import asdict, replace
from fractions import Fraction
from ipaddress import ip_address

from chart.common import qos

KEY = bytes(range(1, 33))
FULL = qos.Qos(
    guaranteed_rate=0x7D0E,
    available_rate=0x61B0,
    preemption_priority=7,
    delay_priority=200,
    direction=1,
    status=qos.Status.RENEGOTIATE_RESPONSE,
    flow_type=2,
    charging=5,
    burst_tolerance=15,
    service=qos.Service.VARIABLE,
    lowered=1,
    source_port=50123,
)
PLAIN = qos.Qos(available_rate=0x7A13, flow_type=1, source_port=40000)


def exact_rate(word: int) -> int:
    """Whole bit/s of a word, from signalling.md's formula."""
    value = (1 + Fraction(word >> 5 & 0x1FF, 512)) * 2 ** (word & 31) * 1000
    return int(value) if word & 0x4000 else 0


def rates() -> list[dict[str, object]]:
    """Rates in and the words they must give, found by search among all words."""
    words = sorted(range(0x4000, 0x8000), key=exact_rate)
    asked = [0, 1, 999, 1000, 1001, 1002, 64_000, 82_000, 82_001, 1_536_000, 32_000_000, 100_000_000, 10**9, 10**10]
    asked += [10**11, exact_rate(0x7FFF) - 1, exact_rate(0x7FFF), 10**13, 2**64 - 1]
    result = []
    for rate_bps in asked:
        fitting = [word for word in words if exact_rate(word) <= rate_bps]
        word = fitting[-1] if fitting else 0
        result.append({"rate_bps": str(rate_bps), "word": f"{word:04x}", "decoded_bps": str(exact_rate(word))})
    return result


def rfc4868() -> list[dict[str, str]]:
    """RFC 4868 section 2.7.2.1."""
    cases = [
        ("AUTH256-1", b"\x0b" * 32, b"Hi There", "198a607eb44bfbc69903a0f1cf2bbdc5"),
        ("AUTH256-2", b"Jefe" * 8, b"what do ya want for nothing?", "167f928588c5cc2eef8e3093caa0e87c"),
        ("AUTH256-3", b"\xaa" * 32, b"\xdd" * 50, "cdcb1220d1ecccea91e53aba3092f962"),
        ("AUTH256-4", bytes(range(1, 33)), b"\xcd" * 50, "372efcf9b40b35c2115b1346903d2ef4"),
    ]
    return [{"name": name, "key": key.hex(), "data": data.hex(), "tag": tag} for name, key, data, tag in cases]


def ipv4(protocol: int = 6, payload: bytes = b"", fragment: int = 0, options: bytes = b"") -> bytes:
    """Build an IPv4 packet from 10.0.1.1 to 10.0.9.2."""
    size = 20 + len(options)
    head = struct.pack(">BBHHHBBH", 0x40 | size // 4, 0, size + len(payload), 7, fragment, 64, protocol, 0)
    head = bytearray(head + ip_address("10.0.1.1").packed + ip_address("10.0.9.2").packed + options)
    head[10:12] = struct.pack(">H", qos.ipv4_checksum(head))
    return bytes(head) + payload


def ipv6(protocol: int = 6, payload: bytes = b"", label: int = 0x12345) -> bytes:
    """Build an IPv6 packet from 2001:db8::1 to 2001:db8:9::2."""
    head = struct.pack(">IHBB", 6 << 28 | label, len(payload), protocol, 64)
    return head + ip_address("2001:db8::1").packed + ip_address("2001:db8:9::2").packed + payload


TCP = struct.pack(">HHIIBBHHH", 40000, 443, 1, 0, 0x50, 2, 65535, 0, 0)
UDP = struct.pack(">HHHH", 50123, 5001, 8, 0)


def message(octets: bytes, flow: qos.Flow) -> bytes:
    """What the tag covers, put together by hand."""
    return octets[:18] + flow.source.packed + flow.destination.packed + bytes([flow.protocol]) + flow.selector


def packet(name: str, bare: bytes, flow: qos.Flow, structure: qos.Qos, sequence: int, shim: bool = False) -> object:
    """One packet with a signal, and what it was before."""
    signal = qos.Signal(structure, sender=0xBEEF, epoch=3, sequence=sequence)
    tag = hmac.new(KEY, message(signal.pack(), flow), hashlib.sha256).digest()[:16]
    signal = replace(signal, tag=tag)
    carrier = "shim" if shim else f"ipv{flow.family}"
    if shim:
        octets = qos.build_shim(signal, flow)
        parsed = qos.parse_shim(octets)
    elif flow.family == 4:
        octets = qos.insert_ipv4(bare, signal)
        parsed = qos.parse_ipv4(octets)
    else:
        octets = qos.insert_ipv6(bare, signal)
        parsed = qos.parse_ipv6(octets)
    return {
        "name": name,
        "carrier": carrier,
        "bare": bare.hex(),
        "octets": octets.hex(),
        "signal_offset": parsed.signal_offset,
        "transport_offset": parsed.transport_offset,
        "flow": {
            "family": flow.family,
            "protocol": flow.protocol,
            "source": flow.source.packed.hex(),
            "destination": flow.destination.packed.hex(),
            "selector": flow.selector.hex(),
        },
        "key": KEY.hex(),
        "sender": signal.sender,
        "epoch": signal.epoch,
        "sequence": sequence,
        "tag": tag.hex(),
        "qos": {field: int(value) for field, value in asdict(structure).items()},
    }


def packets() -> list[object]:
    """Signals in every carrier."""
    v4, v6 = (ip_address("10.0.1.1"), ip_address("10.0.9.2")), (ip_address("2001:db8::1"), ip_address("2001:db8:9::2"))
    tcp4 = qos.Flow.of_ports(*v4, 6, (40000, 443))
    udp4 = qos.Flow.of_ports(*v4, 17, (50123, 5001))
    tcp6 = qos.Flow.of_ports(*v6, 6, (40000, 443))
    hidden = qos.Flow(*v6, 50, bytes.fromhex("00012345"))
    fragment = qos.Flow(*v6, 44, bytes.fromhex("00012345"))
    behind = struct.pack(">BB6x", 6, 0) + TCP
    return [
        packet("a TCP request over IPv4", ipv4(6, TCP), tcp4, PLAIN, 1),
        packet("a UDP renegotiation over IPv4", ipv4(17, UDP), udp4, FULL, 0x800000),
        packet("ICMP over IPv4, no ports", ipv4(1, bytes(8)), qos.Flow(*v4, 1), FULL, 0xFFFFFF),
        packet("a TCP request over IPv6", ipv6(6, TCP), tcp6, PLAIN, 2),
        packet("ports behind destination options", ipv6(60, behind), tcp6, FULL, 3),
        packet("ESP over IPv6: the flow label", ipv6(50, bytes(16)), hidden, FULL, 4),
        packet("an IPv6 fragment: the flow label", ipv6(44, behind), fragment, FULL, 5),
        packet("the shim of an IPv4 flow", b"", udp4, FULL, 6, shim=True),
        packet("the shim of an IPv6 flow", b"", tcp6, PLAIN, 7, shim=True),
    ]


def changed(octets: bytes, at: int, *values: int) -> bytes:
    """Return the octets with some of them replaced."""
    return octets[:at] + bytes(values) + octets[at + len(values) :]


def malformed() -> list[dict[str, str]]:
    """Packets without a valid signal and why."""
    signal = qos.Signal(PLAIN, 1, 2, 3).sign(qos.Flow(ip_address("10.0.1.1"), ip_address("10.0.9.2"), 6), KEY)
    good4, good6 = qos.insert_ipv4(ipv4(6, TCP), signal), qos.insert_ipv6(ipv6(6, TCP), signal)
    shim = qos.build_shim(signal, qos.Flow(ip_address("10.0.1.1"), ip_address("10.0.9.2"), 6))
    option = bytes([0x3E, 34]) + signal.pack()
    two = bytes([6, 9]) + option * 2 + bytes([1, 4, 0, 0, 0, 0])
    chain = b"".join(struct.pack(">BB6x", 60, 0) for _ in range(5))
    cases = [
        ("nothing", "ipv4", b"", "TRUNCATED"),
        ("19 octets", "ipv4", good4[:19], "TRUNCATED"),
        ("IPv6 where IPv4 is expected", "ipv4", good6, "NOT_IP"),
        ("IHL 4", "ipv4", changed(good4, 0, 0x44), "BAD_HEADER"),
        ("total length below the header", "ipv4", changed(good4, 2, 0, 55), "BAD_HEADER"),
        ("options cut off", "ipv4", good4[:40], "TRUNCATED"),
        ("no options", "ipv4", ipv4(6, TCP), "NO_SIGNAL"),
        ("end of options first", "ipv4", changed(good4, 20, 0), "NO_SIGNAL"),
        ("another option", "ipv4", ipv4(6, TCP, options=b"\x94\x04\x00\x00"), "NO_SIGNAL"),
        ("only no-operations", "ipv4", ipv4(6, TCP, options=b"\x01" * 40), "NO_SIGNAL"),
        ("length 0", "ipv4", changed(good4, 21, 0), "BAD_OPTION"),
        ("length 1", "ipv4", changed(good4, 21, 1), "BAD_OPTION"),
        ("length beyond the header", "ipv4", changed(good4, 21, 37), "BAD_OPTION"),
        ("type at the very end", "ipv4", ipv4(6, TCP, options=b"\x01\x01\x01\x9e"), "BAD_OPTION"),
        ("35 octets", "ipv4", changed(good4, 21, 35), "BAD_SIGNAL_LENGTH"),
        ("a fragment", "ipv4", changed(good4, 6, 0x20, 0), "FRAGMENT"),
        ("no room for ports", "ipv4", good4[:59], "TRUNCATED"),
        ("version 0", "ipv4", changed(good4, 30, 0, 0), "BAD_VERSION"),
        ("version 2", "ipv4", changed(good4, 30, 0, 4), "BAD_VERSION"),
        ("reserved bit of the guaranteed rate", "ipv4", changed(good4, 22, 0x80), "BAD_RESERVED"),
        ("reserved bit of the available rate", "ipv4", changed(good4, 24, 0xFA), "BAD_RESERVED"),
        ("status 7", "ipv4", changed(good4, 28, 0x71), "BAD_STATUS"),
        ("nothing", "ipv6", b"", "TRUNCATED"),
        ("39 octets", "ipv6", good6[:39], "TRUNCATED"),
        ("IPv4 where IPv6 is expected", "ipv6", good4, "NOT_IP"),
        ("no hop-by-hop header", "ipv6", ipv6(6, TCP), "NO_SIGNAL"),
        ("hop-by-hop header cut off", "ipv6", good6[:47], "TRUNCATED"),
        ("option cut off", "ipv6", good6[:79], "TRUNCATED"),
        ("payload shorter than the header", "ipv6", changed(good6, 4, 0, 39), "TRUNCATED"),
        ("router alert only", "ipv6", ipv6(0, b"\x06\x00\x05\x02\x00\x00\x01\x00" + TCP), "NO_SIGNAL"),
        ("a hop-by-hop header of 136 octets", "ipv6", ipv6(0, b"\x06\x10" + bytes(134) + TCP), "NO_SIGNAL"),
        ("22 pads of one octet", "ipv6", ipv6(0, b"\x06\x02" + bytes(22) + TCP), "BAD_OPTION"),
        ("option beyond the header", "ipv6", changed(good6, 43, 37), "BAD_OPTION"),
        ("type at the very end", "ipv6", ipv6(0, b"\x06\x00\x01\x03\x00\x00\x00\x3e" + TCP), "BAD_OPTION"),
        ("33 octets", "ipv6", changed(good6, 43, 33), "BAD_SIGNAL_LENGTH"),
        ("two signals", "ipv6", ipv6(0, two + TCP), "DUPLICATE"),
        ("five destination options headers", "ipv6", qos.insert_ipv6(ipv6(60, chain), signal), "BAD_HEADER"),
        ("extension header cut off", "ipv6", qos.insert_ipv6(ipv6(60, b"\x06\x00"), signal), "TRUNCATED"),
        ("routing header beyond the packet", "ipv6", qos.insert_ipv6(ipv6(43, b"\x06\xff" + TCP), signal), "TRUNCATED"),
        ("no room for ports", "ipv6", good6[:83], "TRUNCATED"),
        ("version 2", "ipv6", changed(good6, 52, 0, 4), "BAD_VERSION"),
        ("nothing", "shim", b"", "TRUNCATED"),
        ("another datagram", "shim", b"GET / HTTP/1.1", "NOT_SHIM"),
        ("version 2", "shim", changed(shim, 2, 2), "BAD_SHIM"),
        ("family 5", "shim", changed(shim, 3, 5), "BAD_SHIM"),
        ("one octet short", "shim", shim[:-1], "TRUNCATED"),
        ("one octet long", "shim", shim + b"\x00", "BAD_SHIM"),
        ("an IPv4 flow's length for an IPv6 flow", "shim", changed(shim, 3, 6), "TRUNCATED"),
        ("reserved octet", "shim", changed(shim, 6, 1), "BAD_RESERVED"),
        ("status 7", "shim", changed(shim, 14, 0x71), "BAD_STATUS"),
    ]
    return [{"name": name, "carrier": to, "octets": octets.hex(), "error": why} for name, to, octets, why in cases]


def replay() -> list[dict[str, object]]:
    """One window, sequence after sequence."""
    steps = [(0, "TOO_OLD"), (1, "OK"), (1, "REPLAYED"), (3, "OK"), (2, "OK"), (2, "REPLAYED"), (4096, "OK")]
    steps += [(4097, "OK"), (1, "TOO_OLD"), (3, "REPLAYED"), (4, "OK"), (4098, "OK"), (2, "TOO_OLD"), (64, "OK")]
    steps += [(12290, "OK"), (8194, "TOO_OLD"), (8195, "OK"), (8195, "REPLAYED"), (12289, "OK"), (4098, "TOO_OLD")]
    steps += [(0xFFFFFF, "OK"), (0xFFFFFF, "REPLAYED"), (0xFFFFFF - 4095, "OK"), (0xFFFFFF - 4096, "TOO_OLD")]
    steps += [(0x1000000, "TOO_OLD")]
    return [{"sequence": sequence, "result": result} for sequence, result in steps]


def vectors() -> dict[str, object]:
    """Everything that stands in vectors.json."""
    lists = {"rates": rates(), "hmac": rfc4868(), "packets": packets(), "malformed": malformed(), "replay": replay()}
    return {"errors": {reason.name: int(reason) for reason in qos.Reason}, **lists}


if __name__ == "__main__":
    json.dump(vectors(), sys.stdout, indent=1)
    sys.stdout.write("\n")
