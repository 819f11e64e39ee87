"""Endpoints of the experiment `quick-start`: short transfers, and the Quick-Start options of SYNs that arrive.

    python -m chart_lab.quick_start_endpoint receive PORT
    python -m chart_lab.quick_start_endpoint send PEER PORT

The sender takes orders on standard input, one in a line:

    push OCTETS CONGESTION          one connection that carries so much; `in-band`: it asks for a rate itself
    again OCTETS CONGESTION IDLE_S  the same, once more after an idle time; its beginning is that of the second part
    pull OCTETS CONGESTION          one connection whose listener sends so much when it is asked
    burst COUNT                     so many connections at once that carry nothing
    open COUNT PORT PERIOD_S        connections to another port, one after the other, that end when they are there

The receiver writes a line of JSON for every connection that has ended, and for every SYN; the sender one for every
connection that it began, and for every one whose data came to it. Times are of CLOCK_MONOTONIC, which both share. Both
say `ready` when they have begun and end with their standard input.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import select
import selectors
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REQUEST_KIND, REQUEST_OCTETS = 25, 8
UNIT_BPS = 40_000
# Of listeners that send: at the ports behind the receiver's, in this order.
CONGESTION = ("cubic", "bbr")
_ETH_P_IP = 0x0800
_TCP, _SYN, _ACK = 6, 0x02, 0x10
_CHUNK = bytes(65_536)
# A program's own request in band (dataplane/bpf/signal_socket.h).
_SOL_SIGNAL, _SO_REQUEST = 0x4348, 1
_ALL_THAT_IS_SPARE = struct.pack("QQBBBBI", 0, 2**64 - 1, 0, 0, 0, 0, 0)
_LIMIT_S = 60.0


def rate_bps(rate: int) -> int:
    """What the four bits of a rate stand for, bits per second with headers (RFC 4782, table 1)."""
    return UNIT_BPS << rate if rate else 0


def options_of(packet: bytes) -> dict[int, bytes]:
    """The options of an IPv4 header, by kind, whole."""
    options, at, found = packet[20 : (packet[0] & 15) * 4], 0, {}
    while at < len(options) and options[at]:
        length = 1 if options[at] == 1 else max(2, options[at + 1] if at + 1 < len(options) else 2)
        found[options[at]] = options[at : at + length]
        at += length
    return found


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
    port, option = int.from_bytes(packet[header : header + 2]), options_of(packet).get(REQUEST_KIND, b"")
    if len(option) < REQUEST_OCTETS:
        return Asked(port, None, None)
    return Asked(port, option[2] & 15, (packet[8] - option[3]) & 255)


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


def _serve(port: int, congestion: str) -> None:
    """Send to everybody who asks as many octets as he asks for."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        listening.bind(("0.0.0.0", port))  # noqa: S104 - a namespace of the lab
        listening.listen()
        while True:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_LIMIT_S)
                _push(connection, int(connection.recv(32)))


def receive(port: int) -> None:
    """Take connections until standard input ends."""
    poll = selectors.DefaultSelector()
    for number, congestion in enumerate(CONGESTION, 1):
        threading.Thread(target=_serve, args=(port + number, congestion), daemon=True).start()
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


def _push(connection: socket.socket, octets: int) -> None:
    left = octets
    while left:
        left -= connection.send(_CHUNK[:left])


def _await_acknowledgement(connection: socket.socket) -> None:
    """Until nothing of what was sent is on its way."""
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        if not int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
            return
        time.sleep(0.005)


def transfer(peer: str, port: int, octets: int, congestion: str, idle_s: float = 0.0) -> None:
    """One connection that carries so many octets; with ``idle_s`` twice, with so much time between."""
    with socket.socket() as connection:
        if congestion == "in-band":
            connection.setsockopt(_SOL_SIGNAL, _SO_REQUEST, _ALL_THAT_IS_SPARE)
            congestion = "cubic"
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        connection.settimeout(_LIMIT_S)
        began_s = time.monotonic()
        connection.connect((peer, port))
        connected_s = time.monotonic() - began_s
        if idle_s:
            _push(connection, octets)
            _await_acknowledgement(connection)
            time.sleep(idle_s)
            began_s = time.monotonic()
        _tell(began=connection.getsockname()[1], at_s=began_s, connected_s=connected_s)
        _push(connection, octets)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            connection.recv(1)


def pull(peer: str, port: int, octets: int, congestion: str) -> None:
    """One connection whose listener sends."""
    with socket.socket() as connection:
        connection.settimeout(_LIMIT_S)
        began_s = time.monotonic()
        connection.connect((peer, port + 1 + CONGESTION.index(congestion)))
        connection.sendall(str(octets).encode())
        left = octets
        while left and (got := len(connection.recv(1 << 20))):
            left -= got
        _tell(pulled=connection.getsockname()[1], octets=octets - left, seconds=time.monotonic() - began_s)


def open_each(peer: str, port: int, count: int, period_s: float) -> None:
    """Connections one after the other that carry nothing and end at once."""
    opened = 0
    for _ in range(count):
        next_s = time.monotonic() + period_s
        with socket.socket() as connection, contextlib.suppress(OSError):
            connection.settimeout(2)
            # Whoever listens there may not answer any more: ended by a reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.connect((peer, port))
            opened += 1
        time.sleep(max(0.0, next_s - time.monotonic()))
    _tell(opened=opened)


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
        what, *words = line.split()
        if what == "burst":
            burst(peer, port, int(words[0]))
        elif what == "open":
            open_each(peer, int(words[1]), int(words[0]), float(words[2]))
        elif what == "pull":
            pull(peer, port, int(words[0]), words[1])
        else:
            transfer(peer, port, int(words[0]), words[1], float(words[2]) if what == "again" else 0.0)


def main(words: Sequence[str]) -> None:
    """The command line."""
    if words[0] == "receive":
        receive(int(words[1]))
    else:
        send(words[1], int(words[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
