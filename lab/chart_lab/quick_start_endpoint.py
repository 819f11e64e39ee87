"""Endpoints of the experiment `quick-start`: short transfers, and the Quick-Start options of SYNs that arrive.

    python -m chart_lab.quick_start_endpoint receive PORT
    python -m chart_lab.quick_start_endpoint send PEER PORT

The sender takes orders on standard input, one in a line: `OCTETS CONGESTION`, for one connection that carries so much,
or `burst COUNT`, for so many connections at once that carry nothing. The receiver writes a line of JSON for every
connection that has ended, and for every SYN; the sender one for every connection that it began. Times are of
CLOCK_MONOTONIC, which both share. Both say `ready` when they have begun and end with their standard input.
"""

from __future__ import annotations

import contextlib
import json
import select
import selectors
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REQUEST_KIND, REQUEST_OCTETS = 25, 8
UNIT_BPS = 40_000
_ETH_P_IP = 0x0800
_TCP, _SYN, _ACK = 6, 0x02, 0x10
_CHUNK = bytes(65_536)
_LIMIT_S = 60.0


def rate_bps(rate: int) -> int:
    """What the four bits of a rate stand for, bits per second with headers (RFC 4782, table 1)."""
    return UNIT_BPS << rate if rate else 0


@dataclass(frozen=True)
class Asked:
    """The Quick-Start option of a SYN. ``rate``: None: it has none."""

    port: int
    rate: int | None
    ttl_difference: int | None


def asked(packet: bytes) -> Asked | None:
    """Of a whole IPv4 packet that is a SYN; None: it is none."""
    header = (packet[0] & 15) * 4
    if len(packet) < header + 20 or packet[9] != _TCP or packet[header + 13] & (_SYN | _ACK) != _SYN:
        return None
    port, options = int.from_bytes(packet[header : header + 2]), packet[20:header]
    at = 0
    while at + REQUEST_OCTETS <= len(options) and options[at]:
        if options[at] == REQUEST_KIND:
            return Asked(port, options[at + 2] & 15, (packet[8] - options[at + 3]) & 255)
        at += 1 if options[at] == 1 else max(2, options[at + 1])
    return Asked(port, None, None)


def _tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _watch(port: int) -> None:
    """Tell of every SYN to a port, as it arrives at the host."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP)) as arriving:
        while True:
            packet, address = arriving.recvfrom(200)
            found = asked(packet) if address[2] != socket.PACKET_OUTGOING else None
            header = (packet[0] & 15) * 4
            if found is not None and int.from_bytes(packet[header + 2 : header + 4]) == port:
                _tell(syn=found.port, rate=found.rate, ttl_difference=found.ttl_difference, at_s=time.monotonic())


def receive(port: int) -> None:
    """Take connections until standard input ends."""
    poll = selectors.DefaultSelector()
    listening = socket.create_server(("0.0.0.0", port), backlog=512)  # noqa: S104 - a namespace of the lab
    poll.register(listening, selectors.EVENT_READ)
    poll.register(sys.stdin, selectors.EVENT_READ)
    threading.Thread(target=_watch, args=(port,), daemon=True).start()
    received: dict[int, int] = {}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for key, _ in poll.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listening:
                connection, peer = listening.accept()
                received[peer[1]] = 0
                poll.register(connection, selectors.EVENT_READ, peer[1])
                continue
            assert isinstance(key.fileobj, socket.socket)
            octets = 0
            with contextlib.suppress(OSError):
                octets = len(key.fileobj.recv(1 << 20))
            received[key.data] += octets
            if not octets:
                poll.unregister(key.fileobj)
                key.fileobj.close()
                _tell(ended=key.data, octets=received.pop(key.data), at_s=time.monotonic())


def transfer(peer: str, port: int, octets: int, congestion: str) -> None:
    """One connection that carries so many octets."""
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        connection.settimeout(_LIMIT_S)
        began_s = time.monotonic()
        connection.connect((peer, port))
        _tell(began=connection.getsockname()[1], at_s=began_s, connected_s=time.monotonic() - began_s)
        left = octets
        while left:
            left -= connection.send(_CHUNK[:left])
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            connection.recv(1)


def burst(peer: str, port: int, count: int) -> None:
    """So many connections at once, which end as soon as they are there."""
    connections = [socket.socket() for _ in range(count)]
    for connection in connections:
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.connect((peer, port))
    end = time.monotonic() + _LIMIT_S
    for connection in connections:
        # Writable: connected, or refused.
        select.select([], [connection], [], max(0.1, end - time.monotonic()))
        connection.settimeout(max(0.1, end - time.monotonic()))
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        connection.close()
    _tell(burst=count, at_s=time.monotonic())


def send(peer: str, port: int) -> None:
    """Follow orders until standard input ends."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        first, second = line.split()
        if first == "burst":
            burst(peer, port, int(second))
        else:
            transfer(peer, port, int(first), second)


def main(words: Sequence[str]) -> None:
    """The command line."""
    if words[0] == "receive":
        receive(int(words[1]))
    else:
        send(words[1], int(words[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
