"""Many UDP flows between two hosts, and who writes down which of their datagrams arrive: what moving flows is seen by.

    python -m chart_lab.many_flows send OWN FIRST_PORT PEER PORT FLOWS PACKETS_PER_S PAYLOAD_OCTETS TRAFFIC_CLASS
    python -m chart_lab.many_flows hear OWN PORT FILE

Every flow has a port of its own at the sender, and sends at equal distances; flows take turns. Datagrams say when they
were sent. A record of the file (numbered_datagrams.read) is the flow's port and when the datagram was sent: what was
lost is what is missing. Both run until they are ended; each says `ready` when it has begun.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import sys
import time
from pathlib import Path

from chart_lab.numbered_datagrams import ready, record

SENT = struct.Struct("<Q")
RECEIVE_BUFFER_OCTETS = 16 << 20
SO_RCVBUFFORCE = 33
# Sockets besides those of flows.
SPARE_FILES = 64


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
    ready()
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

    def receive(heard: socket.socket) -> tuple[int, int]:
        data, sender = heard.recvfrom(SENT.size)
        return sender[1], SENT.unpack(data)[0]

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_OCTETS)
        heard.bind((own, port))
        record(heard, file, receive)


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
