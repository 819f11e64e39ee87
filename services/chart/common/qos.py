"""The codec of CHART's in-band signalling protocol, byte-compatible with dataplane/lib/qos (docs/signalling.md).

Brassil et al., The CHART System, sections 2, 3 and 5: the 12-octet QoS structure after TIA-1039, its carriers (IPv4
option, IPv6 hop-by-hop option, UDP shim), the tag (HMAC-SHA-256-128, RFC 4868) and the replay window (RFC 6479). The
data plane runs the C side; this one serves tools, tests and services that look at signals.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address

VERSION = 1
SIGNAL_OCTETS = 34
IPV4_OPTION_TYPE = 0x9E
IPV4_OPTION_OCTETS = 36
IPV6_OPTION_TYPE = 0x3E
IPV6_HOP_OCTETS = 40
IPV6_HOP_MAX = 128
IPV6_OPTIONS_MAX = 16
IPV6_EXTENSIONS_MAX = 4
PARSE_MAX = 256
SHIM_PORT = 18400
SHIM_MAGIC = 0x4348
SHIM_VERSION = 1
SEQUENCE_MAX = 0xFFFFFF
SEQUENCE_RENEW = 1 << 23
REPLAY_WINDOW = 4096
RATE_MAX = 0x7FFF
RATE_MAX_BPS = 125 * (1023 << 31) // 64
_RATE_NONZERO = 0x4000
_RATE_RESERVED = 0x8000
_WITH_PORTS = frozenset({6, 17, 33, 132, 136})  # TCP, UDP, DCCP, SCTP, UDP-Lite
_SKIPPED_EXTENSIONS = frozenset({43, 51, 60, 135})  # routing, AH, destination options, mobility

Address = IPv4Address | IPv6Address


class Reason(IntEnum):
    """Why a signal was not accepted; the numbers are those of enum chart_qos_error."""

    OK = 0
    TRUNCATED = 1
    NOT_IP = 2
    BAD_HEADER = 3
    NO_SIGNAL = 4
    BAD_OPTION = 5
    BAD_SIGNAL_LENGTH = 6
    DUPLICATE = 7
    FRAGMENT = 8
    BAD_VERSION = 9
    BAD_RESERVED = 10
    BAD_STATUS = 11
    NOT_SHIM = 12
    BAD_SHIM = 13
    NO_ROOM = 14
    UNKNOWN_SENDER = 15
    UNKNOWN_EPOCH = 16
    TOO_OLD = 17
    REPLAYED = 18
    BAD_TAG = 19
    EXHAUSTED = 20
    EPOCH_IN_USE = 21


class QosError(ValueError):
    """A packet without a valid signal, or a signal that cannot be put into a packet."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.name)
        self.reason = reason


class Status(IntEnum):
    """Low three bits of CD: what a signal is."""

    REQUEST = 0
    RESPONSE = 1
    CONFIRM = 2
    RENEGOTIATE = 3
    RENEGOTIATE_RESPONSE = 4
    CLOSE = 5
    REJECT = 6


class Service(IntEnum):
    """SVC: the service that was asked for; never altered on the way."""

    AVAILABLE = 0
    GUARANTEED = 1
    MAXIMUM = 2
    VARIABLE = 3


def decode_rate(word: int) -> int:
    """Bit/s of a 16-bit rate word, rounded down to whole bit/s; the reserved bit is not looked at."""
    if not word & _RATE_NONZERO:
        return 0
    return 125 * ((512 + (word >> 5 & 0x1FF)) << (word & 31)) // 64


def encode_rate(rate_bps: int) -> int:
    """Largest rate word whose value does not exceed `rate_bps`: 0 below 1 kb/s, 0x7FFF above 4.29 Tb/s.

    Raises ValueError for a negative rate.
    """
    if rate_bps < 0:
        raise ValueError(f"a rate is not negative: {rate_bps}")
    if rate_bps >= RATE_MAX_BPS:
        return RATE_MAX
    scaled = (64 * rate_bps + 63) // 125
    if scaled < 512:
        return 0
    exponent = scaled.bit_length() - 10
    return _RATE_NONZERO | (scaled >> exponent & 0x1FF) << 5 | exponent


def rate_order(word: int) -> int:
    """A number that orders rate words as their rates are ordered."""
    return 1 + ((word & 31) << 9 | word >> 5 & 0x1FF) if word & _RATE_NONZERO else 0


def _in_range(**fields: tuple[int, int]) -> None:
    for name, (value, bits) in fields.items():
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} does not fit {bits} bits: {value}")


@dataclass(frozen=True, slots=True)
class Qos:
    """The QoS structure. Rates are words (`encode_rate`, `decode_rate`), so that copying one changes no bit."""

    guaranteed_rate: int = 0
    available_rate: int = 0
    preemption_priority: int = 0
    delay_priority: int = 0
    direction: int = 0
    status: int = Status.REQUEST
    flow_type: int = 0
    charging: int = 0
    burst_tolerance: int = 0
    service: int = Service.AVAILABLE
    lowered: int = 0
    source_port: int = 0

    def pack(self) -> bytes:
        """Return the 12 octets. Raises ValueError for a field that does not fit its place."""
        _in_range(
            guaranteed_rate=(self.guaranteed_rate, 15),
            available_rate=(self.available_rate, 15),
            direction=(self.direction, 1),
            status=(self.status, 3),
            flow_type=(self.flow_type, 4),
            charging=(self.charging, 4),
            burst_tolerance=(self.burst_tolerance, 4),
            service=(self.service, 2),
            lowered=(self.lowered, 1),
            preemption_priority=(self.preemption_priority, 8),
            delay_priority=(self.delay_priority, 8),
            source_port=(self.source_port, 16),
        )
        return struct.pack(
            ">HHBBBBHH",
            self.guaranteed_rate,
            self.available_rate,
            self.preemption_priority,
            self.delay_priority,
            self.direction << 7 | self.status << 4 | self.flow_type,
            self.charging << 4 | self.burst_tolerance,
            self.service << 14 | VERSION << 1 | self.lowered,
            self.source_port,
        )

    @classmethod
    def unpack(cls, octets: bytes) -> Qos:
        """Read 12 octets. Raises QosError BAD_VERSION, BAD_RESERVED or BAD_STATUS, in this order."""
        guaranteed, available, preemption, delay, kind, charge, word, port = struct.unpack(">HHBBBBHH", octets)
        if word >> 1 & 0x1FFF != VERSION:
            raise QosError(Reason.BAD_VERSION)
        if (guaranteed | available) & _RATE_RESERVED:
            raise QosError(Reason.BAD_RESERVED)
        if kind >> 4 & 7 > Status.REJECT:
            raise QosError(Reason.BAD_STATUS)
        return cls(
            guaranteed_rate=guaranteed,
            available_rate=available,
            preemption_priority=preemption,
            delay_priority=delay,
            direction=kind >> 7,
            status=kind >> 4 & 7,
            flow_type=kind & 15,
            charging=charge >> 4,
            burst_tolerance=charge & 15,
            service=word >> 14,
            lowered=word & 1,
            source_port=port,
        )

    def lower(self, guaranteed_rate: int, available_rate: int) -> Qos:
        """Lower both rates to these words; M is set if that changed anything."""
        guaranteed = min(self.guaranteed_rate, guaranteed_rate, key=rate_order)
        available = min(self.available_rate, available_rate, key=rate_order)
        if (guaranteed, available) == (self.guaranteed_rate, self.available_rate):
            return self
        return replace(self, guaranteed_rate=guaranteed, available_rate=available, lowered=1)


@dataclass(frozen=True, slots=True)
class Flow:
    """The flow a signal speaks of. `selector`: both ports; IPv6 with hidden ports the flow label; IPv4 then 0."""

    source: Address
    destination: Address
    protocol: int
    selector: bytes = bytes(4)

    @classmethod
    def of_ports(cls, source: Address, destination: Address, protocol: int, ports: tuple[int, int]) -> Flow:
        """Make the flow between two ports."""
        return cls(source, destination, protocol, struct.pack(">HH", *ports))

    @property
    def family(self) -> int:
        """4 or 6."""
        return self.source.version


@dataclass(frozen=True, slots=True)
class Signal:
    """The 34 octets: structure, element that signed, key epoch, 24-bit sequence, tag."""

    qos: Qos
    sender: int = 0
    epoch: int = 0
    sequence: int = 0
    tag: bytes = bytes(16)

    def signed_octets(self) -> bytes:
        """Return the 18 octets before the tag. Raises ValueError for a field that does not fit its place."""
        _in_range(sender=(self.sender, 16), epoch=(self.epoch, 8), sequence=(self.sequence, 24))
        return self.qos.pack() + struct.pack(">HI", self.sender, self.epoch << 24 | self.sequence)

    def pack(self) -> bytes:
        """Return the 34 octets. Raises ValueError for a field that does not fit its place."""
        if len(self.tag) != 16:
            raise ValueError(f"a tag has 16 octets, not {len(self.tag)}")
        return self.signed_octets() + self.tag

    @classmethod
    def unpack(cls, octets: bytes) -> Signal:
        """Read 34 octets; errors as `Qos.unpack`. The tag is read, not verified."""
        sender, word = struct.unpack_from(">HI", octets, 12)
        return cls(Qos.unpack(octets[:12]), sender, word >> 24, word & SEQUENCE_MAX, bytes(octets[18:34]))

    def compute_tag(self, flow: Flow, key: bytes) -> bytes:
        """Return the tag this signal has on `flow`; `key` has 32 octets (RFC 4868), else ValueError."""
        if len(key) != 32:
            raise ValueError(f"a key has 32 octets, not {len(key)}")
        message = self.signed_octets() + flow.source.packed + flow.destination.packed
        message += bytes([flow.protocol]) + flow.selector
        return hmac.new(key, message, hashlib.sha256).digest()[:16]

    def sign(self, flow: Flow, key: bytes) -> Signal:
        """Return the same signal with its tag."""
        return replace(self, tag=self.compute_tag(flow, key))

    def verify(self, flow: Flow, key: bytes) -> bool:
        """Whether the tag is right, compared in constant time."""
        return hmac.compare_digest(self.tag, self.compute_tag(flow, key))


@dataclass(frozen=True, slots=True)
class Parsed:
    """A signal found in a packet; offsets in octets from its start, `transport_offset` 0 in a shim."""

    signal: Signal
    flow: Flow
    signal_offset: int
    transport_offset: int


def _find_ipv4(header: bytes) -> int:
    offset = 20
    while offset < len(header):
        kind = header[offset]
        if kind == 0:
            break
        if kind == 1:
            offset += 1
            continue
        if offset + 1 >= len(header):
            raise QosError(Reason.BAD_OPTION)
        size = header[offset + 1]
        if size < 2 or offset + size > len(header):
            raise QosError(Reason.BAD_OPTION)
        if kind == IPV4_OPTION_TYPE:
            if size != IPV4_OPTION_OCTETS:
                raise QosError(Reason.BAD_SIGNAL_LENGTH)
            return offset + 2
        offset += size
    raise QosError(Reason.NO_SIGNAL)


def _ports(packet: bytes, offset: int) -> bytes:
    if offset + 4 > len(packet):
        raise QosError(Reason.TRUNCATED)
    return packet[offset : offset + 4]


def parse_ipv4(packet: bytes) -> Parsed:
    """Find the signal in a packet that starts with its IPv4 header; the header checksum is not looked at.

    Raises QosError with the reason, NO_SIGNAL for a sound packet that carries none.
    """
    if len(packet) < 20:
        raise QosError(Reason.TRUNCATED)
    if packet[0] >> 4 != 4:
        raise QosError(Reason.NOT_IP)
    header = (packet[0] & 15) * 4
    total = int.from_bytes(packet[2:4], "big")
    if header < 20 or total < header:
        raise QosError(Reason.BAD_HEADER)
    packet = packet[: min(total, PARSE_MAX)]
    if header > len(packet):
        raise QosError(Reason.TRUNCATED)
    offset = _find_ipv4(packet[:header])
    if int.from_bytes(packet[6:8], "big") & 0x3FFF:
        raise QosError(Reason.FRAGMENT)
    selector = _ports(packet, header) if packet[9] in _WITH_PORTS else bytes(4)
    flow = Flow(IPv4Address(packet[12:16]), IPv4Address(packet[16:20]), packet[9], selector)
    return Parsed(Signal.unpack(packet[offset : offset + SIGNAL_OCTETS]), flow, offset, header)


def _find_ipv6(header: bytes) -> int:
    offset, found = 42, 0
    for _ in range(IPV6_OPTIONS_MAX):
        if offset >= len(header):
            break
        if header[offset] == 0:
            offset += 1
            continue
        if offset + 2 > len(header):
            raise QosError(Reason.BAD_OPTION)
        size = header[offset + 1]
        if offset + 2 + size > len(header):
            raise QosError(Reason.BAD_OPTION)
        if header[offset] == IPV6_OPTION_TYPE:
            if size != SIGNAL_OCTETS:
                raise QosError(Reason.BAD_SIGNAL_LENGTH)
            if found:
                raise QosError(Reason.DUPLICATE)
            found = offset + 2
        offset += 2 + size
    if offset < len(header):
        raise QosError(Reason.BAD_OPTION)
    if not found:
        raise QosError(Reason.NO_SIGNAL)
    return found


def _upper_ipv6(packet: bytes, offset: int, protocol: int) -> tuple[int, int, bytes]:
    """Walk extension headers; returns protocol, its offset and the selector."""
    skipped = 0
    while protocol in _SKIPPED_EXTENSIONS:
        if skipped == IPV6_EXTENSIONS_MAX:
            raise QosError(Reason.BAD_HEADER)
        if offset + 8 > len(packet):
            raise QosError(Reason.TRUNCATED)
        size = packet[offset + 1]
        size = (size + 2) * 4 if protocol == 51 else (size + 1) * 8
        protocol = packet[offset]
        offset += size
        skipped += 1
    if protocol in _WITH_PORTS:
        return protocol, offset, _ports(packet, offset)
    return protocol, offset, struct.pack(">I", int.from_bytes(packet[:4], "big") & 0xFFFFF)


def parse_ipv6(packet: bytes) -> Parsed:
    """Find the signal in a packet that starts with its IPv6 header.

    Raises QosError with the reason, NO_SIGNAL for a sound packet that carries none.
    """
    if len(packet) < 40:
        raise QosError(Reason.TRUNCATED)
    if packet[0] >> 4 != 6:
        raise QosError(Reason.NOT_IP)
    if packet[6] != 0:
        raise QosError(Reason.NO_SIGNAL)
    packet = packet[: min(40 + int.from_bytes(packet[4:6], "big"), PARSE_MAX)]
    if len(packet) < 48:
        raise QosError(Reason.TRUNCATED)
    hop = (packet[41] + 1) * 8
    if hop > IPV6_HOP_MAX:
        raise QosError(Reason.NO_SIGNAL)
    if 40 + hop > len(packet):
        raise QosError(Reason.TRUNCATED)
    offset = _find_ipv6(packet[: 40 + hop])
    protocol, transport, selector = _upper_ipv6(packet, 40 + hop, packet[40])
    flow = Flow(IPv6Address(packet[8:24]), IPv6Address(packet[24:40]), protocol, selector)
    return Parsed(Signal.unpack(packet[offset : offset + SIGNAL_OCTETS]), flow, offset, transport)


def parse_shim(payload: bytes) -> Parsed:
    """Read the shim's datagram, from after the UDP header. Raises QosError with the reason."""
    if len(payload) < 4:
        raise QosError(Reason.TRUNCATED)
    if int.from_bytes(payload[:2], "big") != SHIM_MAGIC:
        raise QosError(Reason.NOT_SHIM)
    family = payload[3]
    if payload[2] != SHIM_VERSION or family not in (4, 6):
        raise QosError(Reason.BAD_SHIM)
    address: type[IPv4Address] | type[IPv6Address] = IPv4Address if family == 4 else IPv6Address
    octets = 4 if family == 4 else 16
    if len(payload) < 46 + 2 * octets:
        raise QosError(Reason.TRUNCATED)
    if len(payload) != 46 + 2 * octets:
        raise QosError(Reason.BAD_SHIM)
    if any(payload[5:8]):
        raise QosError(Reason.BAD_RESERVED)
    source, destination = payload[46 : 46 + octets], payload[46 + octets :]
    flow = Flow(address(source), address(destination), payload[4], payload[42:46])
    return Parsed(Signal.unpack(payload[8:42]), flow, 8, 0)


def ipv4_checksum(header: bytes | bytearray) -> int:
    """Header checksum (RFC 791) with the checksum field taken as 0."""
    words = [int.from_bytes(header[at : at + 2], "big") for at in range(0, len(header), 2) if at != 10]
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def insert_ipv4(packet: bytes, signal: Signal) -> bytes:
    """Put the option into a packet without options. Raises QosError NOT_IP or NO_ROOM."""
    total = int.from_bytes(packet[2:4], "big") + IPV4_OPTION_OCTETS
    if packet[0] >> 4 != 4:
        raise QosError(Reason.NOT_IP)
    if packet[0] & 15 != 5 or total > 0xFFFF:
        raise QosError(Reason.NO_ROOM)
    header = bytearray(b"\x4e" + packet[1:2] + struct.pack(">H", total) + packet[4:20])
    header += bytes([IPV4_OPTION_TYPE, IPV4_OPTION_OCTETS]) + signal.pack()
    header[10:12] = struct.pack(">H", ipv4_checksum(header))
    return bytes(header) + packet[20:]


def insert_ipv6(packet: bytes, signal: Signal) -> bytes:
    """Put a hop-by-hop header with the option into a packet without one. Raises QosError NOT_IP or NO_ROOM."""
    payload = int.from_bytes(packet[4:6], "big") + IPV6_HOP_OCTETS
    if packet[0] >> 4 != 6:
        raise QosError(Reason.NOT_IP)
    if packet[6] == 0 or payload > 0xFFFF:
        raise QosError(Reason.NO_ROOM)
    head = packet[:4] + struct.pack(">HB", payload, 0) + packet[7:40]
    hop = bytes([packet[6], IPV6_HOP_OCTETS // 8 - 1, IPV6_OPTION_TYPE, SIGNAL_OCTETS])
    return head + hop + signal.pack() + b"\x01\x00" + packet[40:]


def build_shim(signal: Signal, flow: Flow) -> bytes:
    """Return the shim's datagram, without the UDP header."""
    head = struct.pack(">HBBB3x", SHIM_MAGIC, SHIM_VERSION, flow.family, flow.protocol)
    return head + signal.pack() + flow.selector + flow.source.packed + flow.destination.packed


class ReplayWindow:
    """Which sequences of an epoch were accepted: the last 4,096, as RFC 6479."""

    def __init__(self) -> None:
        self.highest = 0
        self._seen = 0  # bit n: highest - n was accepted

    def check(self, sequence: int) -> Reason:
        """OK, TOO_OLD or REPLAYED; changes nothing."""
        if not 0 < sequence <= SEQUENCE_MAX:
            return Reason.TOO_OLD
        if sequence > self.highest:
            return Reason.OK
        age = self.highest - sequence
        if age >= REPLAY_WINDOW:
            return Reason.TOO_OLD
        return Reason.REPLAYED if self._seen >> age & 1 else Reason.OK

    def accept(self, sequence: int) -> Reason:
        """Check, and note the sequence if it is OK; call it only after the tag verified."""
        reason = self.check(sequence)
        if reason is Reason.OK:
            ahead = max(0, sequence - self.highest)
            self._seen = (self._seen << min(ahead, REPLAY_WINDOW)) & ((1 << REPLAY_WINDOW) - 1)
            self.highest += ahead
            self._seen |= 1 << (self.highest - sequence)
        return reason


def next_sequence(last: int) -> int:
    """The sequence after `last` (0 before the first). Raises QosError EXHAUSTED."""
    if last >= SEQUENCE_MAX:
        raise QosError(Reason.EXHAUSTED)
    return last + 1


def epoch_due(last: int) -> bool:
    """Whether a sender that last used `last` should ask for a new epoch."""
    return last >= SEQUENCE_RENEW


class Pair:
    """What an element keeps per neighbour that sends to it: at most two accepted epochs with their windows."""

    def __init__(self) -> None:
        self._epochs: dict[int, tuple[bytes, ReplayWindow]] = {}  # oldest first

    def install(self, epoch: int, key: bytes) -> None:
        """Accept a new epoch; the older of two goes. Raises QosError EPOCH_IN_USE while it is accepted."""
        if epoch in self._epochs:
            raise QosError(Reason.EPOCH_IN_USE)
        if len(self._epochs) == 2:
            del self._epochs[next(iter(self._epochs))]
        self._epochs[epoch] = (key, ReplayWindow())

    def retire(self, epoch: int) -> None:
        """Accept an epoch no longer. Raises QosError UNKNOWN_EPOCH."""
        if self._epochs.pop(epoch, None) is None:
            raise QosError(Reason.UNKNOWN_EPOCH)

    def verify(self, signal: Signal, flow: Flow) -> Reason:
        """Check epoch, window and tag, in this order; the window moves only if the result is OK."""
        if signal.epoch not in self._epochs:
            return Reason.UNKNOWN_EPOCH
        key, window = self._epochs[signal.epoch]
        reason = window.check(signal.sequence)
        if reason is not Reason.OK:
            return reason
        if not signal.verify(flow, key):
            return Reason.BAD_TAG
        return window.accept(signal.sequence)
