"""Many UDP flows between two hosts, and who writes down which of their datagrams arrive: what moving flows is seen by.

    python -m chart_lab.many_flows send OWN FIRST_PORT PEER PORT FLOWS PACKETS_PER_S PAYLOAD_OCTETS TRAFFIC_CLASS
    python -m chart_lab.many_flows hear OWN PORT FILE

Every flow has a port of its own at the sender, and sends at equal distances; flows take turns. Datagrams say when they
were sent. A record of the file is port (u64) and nanoseconds since the epoch (u64) of sending, little endian: arrivals
are those of one clock, and what was lost is what is missing. Both run until they are ended; each says `ready` when it
has begun.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

RECORD = struct.Struct("<QQ")
SENT = struct.Struct("<Q")
RECEIVE_BUFFER_OCTETS = 16 << 20
SO_RCVBUFFORCE = 33
# Records are written at least this often, so that a file can be read while it grows.
FLUSH_S = 0.1
# Sockets besides those of flows.
SPARE_FILES = 64


def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def send(
    own: str, first_port: int, peer: str, port: int, flows: int, packets_per_s: float, payload: int, traffic_class: int
) -> None:
    """Datagrams of all flows, without end. One that a missing route refuses counts as sent."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, flows + SPARE_FILES), most))
    sockets = []
    for number in range(flows):
        flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        flow.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class)
        flow.bind((own, first_port + number))
        flow.connect((peer, port))
        sockets.append(flow)
    _ready()
    padding = bytes(payload - SENT.size)
    step_s = 1.0 / (flows * packets_per_s)
    turn, due_s = 0, time.monotonic()
    while True:
        # What is due by now, at once: a sleep per datagram is more than a processor has time for.
        while due_s <= time.monotonic():
            with contextlib.suppress(OSError):
                sockets[turn].send(SENT.pack(time.time_ns()) + padding)
            turn = (turn + 1) % flows
            due_s += step_s
        time.sleep(0.001)


def hear(own: str, port: int, file: Path) -> None:
    """Writes down what comes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard, file.open("wb") as output:
        heard.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_OCTETS)
        heard.bind((own, port))
        heard.settimeout(FLUSH_S)
        _ready()
        flushed_s = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                data, sender = heard.recvfrom(SENT.size)
                output.write(RECORD.pack(sender[1], SENT.unpack(data)[0]))
            if time.monotonic() - flushed_s > FLUSH_S:
                output.flush()
                flushed_s = time.monotonic()


def read(file: Path) -> Iterator[tuple[int, float]]:
    """Port and time of sending (seconds since the epoch) of every datagram that arrived so far, in order of arrival."""
    data = file.read_bytes()
    whole = len(data) - len(data) % RECORD.size
    for port, sent_ns in RECORD.iter_unpack(data[:whole]):
        yield port, sent_ns / 1e9


def main(words: list[str]) -> None:
    """See the module's text."""
    match words:
        case ["send", own, first_port, peer, port, flows, packets_per_s, payload, traffic_class]:
            send(
                own,
                int(first_port),
                peer,
                int(port),
                int(flows),
                float(packets_per_s),
                int(payload),
                int(traffic_class),
            )
        case ["hear", own, port, file]:
            hear(own, int(port), Path(file))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
