"""A TCP sender that tells what is in flight while its data has hardly been acknowledged: `first_flight.py HELP`.

    first_flight.py connect ADDRESS PORT OCTETS [IDLE_S]    open a connection and send
    first_flight.py listen ADDRESS PORT OCTETS              send to the first who connects
    first_flight.py read ADDRESS PORT                       connect and take what comes

With IDLE_S the sender sends once, waits, and sends again; what it tells is of the second time. A line of JSON at the
end. Counts are of packets.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import time

BLOCK = bytes(1 << 16)
LIMIT_S = 20.0
# Of struct tcp_info.
CA_STATE, SEGMENT_BYTES, UNACKED, SSTHRESH, CWND, ACKED_BYTES = 1, 16, 24, 76, 80, 120
RECOVERY = 3
# Windows of slow start that hold this many segments: 10 and 20.
EARLY_SEGMENTS = 30


class Watched:
    """A connection whose state is read."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.most_in_flight = self.most_early = 0
        self.least_cwnd_in_recovery: int | None = None
        self.controls: list[str] = []
        self.base_bytes = self.look()[0]

    def look(self) -> tuple[int, int]:
        """Octets acknowledged and segments in flight now."""
        told = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        unacked, cwnd, segment = (struct.unpack_from("I", told, at)[0] for at in (UNACKED, CWND, SEGMENT_BYTES))
        acked = struct.unpack_from("Q", told, ACKED_BYTES)[0]
        control = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        if self.controls[-1:] != [control]:
            self.controls.append(control)
        self.most_in_flight = max(self.most_in_flight, unacked)
        if told[CA_STATE] >= RECOVERY:
            self.least_cwnd_in_recovery = min(self.least_cwnd_in_recovery or cwnd, cwnd)
        if acked <= getattr(self, "base_bytes", 0) + EARLY_SEGMENTS * segment:
            self.most_early = max(self.most_early, unacked)
        return acked, unacked

    def send(self, octets: int) -> None:
        """Send so many and wait until all of them are acknowledged."""
        self.connection.setblocking(False)
        left, end = octets, time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                left -= self.connection.send(BLOCK[:left]) if left else 0
            _, unacked = self.look()
            if not left and not unacked:
                return
            time.sleep(0.001)
        raise SystemExit(f"{left} octets were not sent, or not acknowledged, within {LIMIT_S:g} s")


def connect(address: str, port: int) -> socket.socket:
    """A connection to an IPv4 or IPv6 address."""
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    connection.settimeout(LIMIT_S)
    connection.connect((address, port))
    return connection


def accept(address: str, port: int) -> socket.socket:
    """Of who connects first."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listener:
        listener.settimeout(LIMIT_S)
        return listener.accept()[0]


def send(connection: socket.socket, octets: int, idle_s: float) -> None:
    """Send, and tell what was seen."""
    watched = Watched(connection)
    watched.send(octets)
    if idle_s:
        time.sleep(idle_s)
        watched = Watched(connection)
        watched.send(octets)
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    facts = {
        "most_in_flight": watched.most_in_flight,
        "most_early": watched.most_early,
        "least_cwnd_in_recovery": watched.least_cwnd_in_recovery,
        "ssthresh": struct.unpack_from("I", told, SSTHRESH)[0],
        "controls": watched.controls,
    }
    sys.stdout.write(json.dumps(facts) + "\n")


def main(words: list[str]) -> None:
    """The command line."""
    what, address, port = words[0], words[1], int(words[2])
    if what == "read":
        with connect(address, port) as connection:
            while connection.recv(1 << 20):
                pass
        return
    with connect(address, port) if what == "connect" else accept(address, port) as connection:
        send(connection, int(words[3]), float(words[4]) if len(words) > 4 else 0.0)


if __name__ == "__main__":
    main(sys.argv[1:])
