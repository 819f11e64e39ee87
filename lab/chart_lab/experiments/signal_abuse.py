"""`signal-abuse`: forged, replayed, truncated and bit-flipped signals against the elements; how many they accept.

Real signals of a flow are captured where they enter the path. When the flow has ended they are played again, altered in
every way below, at the first element on the way, which has their sender's keys. What it refuses goes on as the ordinary
packet it is, so the element behind it sees it too: what either accepts counts.
"""

from __future__ import annotations

import random
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from chart.common import qos
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, temporary_lab
from chart_lab.experiments.signal_capture import Capture
from chart_lab.experiments.signal_lab import Element, Signals, ask, elements, line_topology
from chart_lab.experiments.traffic import Transfer
from chart_lab.network import Lab
from chart_lab.topology import node_address

FORGERIES = 100_000
FLOW_S = 2.0
PORT = 5001
RATE_MBIT = 100.0
DELAY_MS = 2.0
# Slow enough that no queue on the way loses any.
PACKETS_PER_S = 20_000
# Fewer than this share seen by the element: the injection failed, and nothing is proved.
LEAST_SEEN = 0.98
# An agent looks at its file 20 times a second.
READ_AGAIN_S = 0.5
REFUSED = (
    *("truncated", "not_ip", "bad_header", "bad_option", "bad_signal_length", "duplicate", "fragment", "bad_version"),
    *("bad_reserved", "bad_status", "not_shim", "bad_shim", "unknown_epoch", "too_old", "replayed", "bad_tag"),
    "over_budget",
)
# Sequences that the flow did not come to.
FRESH_FROM = 1 << 20
UDP = 17
KERNEL_COMPLAINTS = ("WARNING:", "BUG:", "Oops", "general protection")

Forge = Callable[[random.Random, bytes], bytes]


def _with_checksum(packet: bytes) -> bytes:
    """The packet with a right IPv4 header checksum, so that nothing else than the signal is wrong with it."""
    octets = bytearray(packet)
    octets[10:12] = qos.ipv4_checksum(octets[: (octets[0] & 15) * 4]).to_bytes(2, "big")
    return bytes(octets)


def _signal_of(packet: bytes) -> qos.Parsed:
    return qos.parse_ipv4(packet)


def _put(packet: bytes, signal: qos.Signal) -> bytes:
    return _with_checksum(packet[:22] + signal.pack() + packet[56:])


def replayed(_: random.Random, packet: bytes) -> bytes:
    """As it was sent and accepted."""
    return packet


def flipped(generator: random.Random, packet: bytes) -> bytes:
    """One bit of the signal, an address or a port is another; the option itself still looks like one."""
    octets = bytearray(packet)
    place = generator.choice([*range(12, 20), *range(22, 60)])
    octets[place] ^= 1 << generator.randrange(8)
    return _with_checksum(bytes(octets))


def truncated(generator: random.Random, packet: bytes) -> bytes:
    """The packet ends within its option; the IP header says what was sent."""
    return packet[: generator.randrange(21, 56)]


def raised(generator: random.Random, packet: bytes) -> bytes:
    """A fresh sequence and a higher rate under the old tag."""
    signal = _signal_of(packet).signal
    asked = replace(signal.qos, guaranteed_rate=qos.RATE_MAX, available_rate=qos.RATE_MAX)
    return _put(packet, replace(signal, qos=asked, sequence=generator.randrange(1, qos.SEQUENCE_MAX + 1)))


def forged(generator: random.Random, packet: bytes) -> bytes:
    """A fresh sequence under a key that is not the pair's."""
    parsed = _signal_of(packet)
    signal = replace(parsed.signal, sequence=generator.randrange(1, qos.SEQUENCE_MAX + 1))
    return _put(packet, signal.sign(parsed.flow, generator.randbytes(32)))


def stranger(generator: random.Random, packet: bytes) -> bytes:
    """A sender or an epoch that the element has no key of."""
    parsed = _signal_of(packet)
    signal = replace(
        parsed.signal,
        sender=generator.randrange(100, 0x10000),
        epoch=generator.randrange(100, 256),
        sequence=generator.randrange(1, qos.SEQUENCE_MAX + 1),
    )
    return _put(packet, signal.sign(parsed.flow, generator.randbytes(32)))


FORGES: dict[str, Forge] = {forge.__name__: forge for forge in (replayed, flipped, truncated, raised, forged, stranger)}


def signed(key: bytes) -> Forge:
    """A fresh sequence and a right tag under this key."""

    def sign(generator: random.Random, packet: bytes) -> bytes:
        parsed = _signal_of(packet)
        signal = replace(parsed.signal, sequence=generator.randrange(FRESH_FROM, qos.SEQUENCE_MAX + 1))
        return _put(packet, signal.sign(parsed.flow, key))

    return sign


def altered(key: bytes) -> Forge:
    """Signed with the right key, never seen before, and one bit changed on the way: only the tag can tell."""
    sign = signed(key)
    return lambda generator, packet: flipped(generator, sign(generator, packet))


def other_carrier(address: IPv4Address) -> Forge:
    """Replayed through the second carrier: the same signal in a shim datagram to the element."""

    def forge(_: random.Random, packet: bytes) -> bytes:
        parsed = _signal_of(packet)
        payload = qos.build_shim(parsed.signal, parsed.flow)
        datagram = struct.pack("!HHHH", qos.SHIM_PORT, qos.SHIM_PORT, 8 + len(payload), 0) + payload
        head = packet[:2] + struct.pack("!HHHBBH", 20 + len(datagram), 0, 0, 64, UDP, 0)
        head = b"\x45" + head[1:] + parsed.flow.source.packed + address.packed
        return _with_checksum(head + datagram)

    return forge


def forges(signals: Signals) -> dict[str, Forge]:
    """Every kind by its name. Keys as an attacker would have them: none, another pair's, or the right one unused."""
    alpha, mid, bravo = map(signals.number, signals.elements)
    right = bytes.fromhex(signals.key(alpha, mid))
    others = bytes.fromhex(signals.key(bravo, mid))
    address = node_address(signals.topology, "mid")
    return {
        **FORGES,
        "altered": altered(right),
        "other_pair": signed(others),
        "other_carrier": other_carrier(address),
    }


INJECT = """
import socket, struct, sys, time
data = sys.stdin.buffer.read()
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
raw.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
address, offset, number, start = (sys.argv[1], 0x0800), 0, 0, time.monotonic()
while offset < len(data):
    (length,) = struct.unpack_from("!H", data, offset)
    raw.sendto(data[offset + 2 : offset + 2 + length], address)
    offset += 2 + length
    number += 1
    while (ahead := number / float(sys.argv[2]) - (time.monotonic() - start)) > 0:
        time.sleep(min(ahead, 0.001))
print(number)
"""


def inject(
    lab: Lab, packets: Sequence[bytes], node: str = "alpha", interface: str = "to-mid", per_s: float = PACKETS_PER_S
) -> int:
    """Sends packets into a node's link, so many a second; returns how many. Raises LabError when that fails.

    They go past the node's own programs: to those they would be packets of the flow, for which it would renew every
    128 packets with signals of its own, and rightly accepted ones.
    """
    data = b"".join(len(packet).to_bytes(2, "big") + packet for packet in packets)
    command = ["/usr/bin/python3", "-c", INJECT, interface, str(per_s)]
    result = subprocess.run(lab.command_line(node, command), input=data, capture_output=True, timeout=300, check=False)
    if result.returncode != 0:
        raise LabError(f"the forgeries could not be sent: {result.stderr.decode()[-300:]}")
    return int(result.stdout)


def genuine_signals(lab: Lab) -> list[bytes]:
    """The signals that alpha sent for one flow which has ended. Raises LabError when there are none."""
    with Capture(lab, "alpha", "to-mid", "src", "host", lab.address("alpha")) as capture:
        Transfer(lab, "alpha", "bravo", duration_s=FLOW_S, port=PORT).finish()
    found = [packet.octets for packet in capture.packets() if packet.signal is not None]
    if not found:
        raise LabError("no signal was captured")
    return found


def kernel_complaints() -> int:
    """Lines of the kernel's log that tell of a fault."""
    told = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
    return sum(any(word in line for word in KERNEL_COMPLAINTS) for line in told.splitlines())


def refused(counters: dict[str, int]) -> int:
    """Signals that an element did not accept."""
    return sum(counters[name] for name in REFUSED)


def evaluate(tried: int, accepted: int, complaints: int) -> list[Figure]:
    """The figures of the experiment."""
    return [
        Figure("forgeries_tried", tried, "signals", f">= {FORGERIES}"),
        Figure("forgeries_accepted", accepted, "signals", "<= 0"),
        Figure("kernel_complaints", complaints, "lines", "<= 0"),
    ]


def attack(lab: Lab, targets: Sequence[Element], packets: Sequence[bytes]) -> tuple[int, list[dict[str, int]]]:
    """Injects and returns how many were sent and by how much each counter of each target moved."""
    before = [target.counters() for target in targets]
    sent = inject(lab, packets)
    after = [target.counters() for target in targets]
    return sent, [{name: new[name] - old[name] for name in new} for old, new in zip(before, after, strict=True)]


def run(settings: Settings, report: Report) -> Outcome:
    """One flow, then forgeries made of its signals, kind by kind."""
    generator = random.Random(settings.seed)  # noqa: S311 - which bit is flipped, nothing secret
    topology = line_topology(("alpha", "mid", "bravo"), rate_mbit=RATE_MBIT, delay_ms=DELAY_MS)
    signals = Signals(topology, asks={"alpha": [ask(port=PORT, available_bps=10**12)]})
    kinds = forges(signals)
    each = -(-FORGERIES // len(kinds))
    tried = accepted = seen = 0
    by_kind: dict[str, dict[str, int]] = {}
    complaints = kernel_complaints()
    with temporary_lab(topology, settings.seed) as lab, elements(lab, signals) as running:
        report("a flow", 0.0)
        genuine = genuine_signals(lab)
        # alpha has nothing more to ask: whatever is accepted from now on was forged.
        signals.asks = {}
        running["alpha"].write()
        time.sleep(READ_AGAIN_S)
        targets = [running["mid"], running["bravo"]]
        for number, (kind, forge) in enumerate(kinds.items()):
            report(kind, 0.1 + 0.9 * number / len(kinds))
            packets = [forge(generator, generator.choice(genuine)) for _ in range(each)]
            sent, (moved, behind) = attack(lab, targets, packets)
            tried += sent
            accepted += moved["accepted"] + behind["accepted"]
            seen += refused(moved) + moved["accepted"]
            by_kind[kind] = {name: count for name, count in moved.items() if count} | {"sent": sent}
            by_kind[kind] |= {"accepted_behind": behind["accepted"]}
    if seen < LEAST_SEEN * tried:
        raise LabError(f"only {seen} of {tried} forgeries were seen by the element: {by_kind}")
    figures = evaluate(tried, accepted, kernel_complaints() - complaints)
    lines = ["# Forged signals", "", "| kind | tried | counted as | accepted behind |", "| --- | --- | --- | --- |"]
    for kind, moved in by_kind.items():
        told = ", ".join(f"{name} {count}" for name, count in moved.items() if name not in ("sent", "accepted_behind"))
        lines.append(f"| {kind} | {moved['sent']} | {told} | {moved['accepted_behind']} |")
    return Outcome(figures, "\n".join(lines) + "\n", {"by_kind": by_kind})


EXPERIMENT = Experiment("signal-abuse", "Forged, replayed, truncated and altered signals against elements.", run)
