"""Endpoints of the experiment `scone`: datagrams with the bytes of QUIC and SCONE, made by hand, and what arrives.

    python -m chart_lab.scone_endpoint send OWN PEER SCONE_INTERVAL_S PORTS
    python -m chart_lab.scone_endpoint receive OWN PORTS FILE

Every port is a flow. The sender puts a SCONE packet with the signal `unknown` in front of a datagram at every interval
(Thomson et al., Standard Communication with Network Elements (SCONE) Protocol), and sends two others beside it: a long
header of QUIC version 1 and a short header. The receiver reads whole IP packets, before the kernel looks at
their checksums, and writes a line of JSON for each. Both run until they are ended and say `ready` when they have begun.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

UNKNOWN = 127
HIGHEST = 126
_VERSION = 0x6F7DC0FD
_CONNECTION_OCTETS = 8
_PAYLOAD_OCTETS = 301
_IP_PROTOCOL_UDP = 17
_UDP_HEADER = 8
_RECEIVE_OCTETS = 4096

Kind = Literal["scone", "long", "short"]


def advised_bps(signal: int) -> float:
    """What a signal stands for, bits per second. Raises ValueError for `unknown`."""
    if not 0 <= signal <= HIGHEST:
        raise ValueError(f"signal {signal} stands for no rate")
    return 1e5 * 10 ** (signal / 20)


def scone_head(signal: int) -> bytes:
    """The first five octets of a SCONE packet."""
    return bytes([0xC0 | signal >> 1]) + (_VERSION | (signal & 1) << 31).to_bytes(4)


def signal_in(data: bytes) -> int | None:
    """The signal of the SCONE packet that a datagram begins with; None: it begins with none."""
    if len(data) < 5 or not data[0] & 0x80:
        return None
    version = int.from_bytes(data[1:5])
    return (data[0] & 0x3F) << 1 | version >> 31 if version & 0x7FFFFFFF == _VERSION else None


def datagram(port: int, kind: Kind, signal: int = UNKNOWN) -> bytes:
    """What a flow sends: always the same for a port, a kind and a signal."""
    connection = port.to_bytes(_CONNECTION_OCTETS)
    short = b"\x41" + connection + bytes((port + place) & 0xFF for place in range(_PAYLOAD_OCTETS))
    if kind == "scone":
        return scone_head(signal) + bytes([_CONNECTION_OCTETS]) + connection + b"\x00" + short
    if kind == "long":
        return b"\xc3\x00\x00\x00\x01" + bytes([_CONNECTION_OCTETS]) + connection + b"\x00" + short
    return short


def checksum_fits(packet: bytes) -> bool:
    """Whether the UDP checksum of a whole IPv4 packet is right; one that is 0 was left out and is not."""
    header = (packet[0] & 15) * 4
    udp = packet[header:]
    if udp[6:8] == b"\x00\x00":
        return False
    words = packet[12:20] + bytes([0, _IP_PROTOCOL_UDP]) + len(udp).to_bytes(2) + udp + bytes(len(udp) % 2)
    total = sum(int.from_bytes(words[place : place + 2]) for place in range(0, len(words), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


@dataclass(frozen=True)
class Arrival:
    """A datagram that arrived: when (seconds since the epoch), the signal of a SCONE packet, whether the UDP checksum
    is right, and whether every other bit is as it was sent.
    """

    at_s: float
    port: int
    signal: int | None
    checksum: bool
    intact: bool


def arrival(packet: bytes, ports: Sequence[int], at_s: float) -> Arrival | None:
    """What a whole IPv4 packet with UDP says; None: it belongs to none of the flows."""
    udp = packet[(packet[0] & 15) * 4 :]
    port, data = int.from_bytes(udp[2:4]), udp[_UDP_HEADER:]
    if port not in ports:
        return None
    signal = signal_in(data)
    plain = [datagram(port, "long"), datagram(port, "short")]
    sent = plain if signal is None else [datagram(port, "scone", signal)]
    return Arrival(at_s, port, signal, checksum_fits(packet), data in sent)


def read(path: Path) -> list[Arrival]:
    """What a receiver wrote; a last line that is not complete is left out."""
    return [Arrival(**json.loads(line)) for line in path.read_text().split("\n")[:-1]]


def _bound(own: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((own, port))
    made.setblocking(False)
    return made


def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def send(own: str, peer: str, interval_s: float, ports: Sequence[int]) -> None:
    """Three datagrams of every flow at an interval, the flows spread over it."""
    flows = [(_bound(own, port), port) for port in ports]
    _ready()
    due_s = time.monotonic()
    while True:
        for flow, port in flows:
            for kind in ("scone", "long", "short"):
                with contextlib.suppress(OSError):
                    flow.sendto(datagram(port, kind), (peer, port))
            due_s += interval_s / len(flows)
            time.sleep(max(0.0, due_s - time.monotonic()))


def receive(own: str, ports: Sequence[int], path: Path) -> None:
    """Writes down what arrives."""
    _keep = [_bound(own, port) for port in ports]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, _IP_PROTOCOL_UDP) as raw, path.open("w", buffering=1) as lines:
        raw.bind((own, 0))
        _ready()
        while True:
            found = arrival(raw.recv(_RECEIVE_OCTETS), ports, time.time())
            if found is not None:
                lines.write(json.dumps(asdict(found)) + "\n")


def main(words: list[str]) -> None:
    """See the module's text."""
    match words:
        case ["send", own, peer, interval_s, ports]:
            send(own, peer, float(interval_s), [int(one) for one in ports.split(",")])
        case ["receive", own, ports, path]:
            receive(own, [int(one) for one in ports.split(",")], Path(path))
        case _:
            sys.exit("usage: send OWN PEER SCONE_INTERVAL_S PORTS | receive OWN PORTS FILE")


if __name__ == "__main__":
    main(sys.argv[1:])
