"""Small UDP datagrams at a steady pace, both ways between two nodes: the traffic of the experiment `route-follow`.

    python -m chart_lab.steady_datagrams OWN PEER PACKETS_PER_S SENT_PORTS HEARD_PORTS

Every port is a flow of its own from the same port of one node to that of the other, so that equal-cost multipath by
ports keeps each on one way. What comes in is taken by the kernel and read by nobody. Errors of a route that is missing
just now end nothing. Runs until it is ended; says `sending` when it has begun.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Sequence

PAYLOAD = bytes(472)


def bound(own: str, port: int) -> socket.socket:
    """A socket of one flow."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((own, port))
    made.setblocking(False)
    return made


def send(own: str, peer: str, packets_per_s: float, sent: Sequence[int], heard: Sequence[int]) -> None:
    """One datagram of every flow in turn, at so many of each per second."""
    flows = [(bound(own, port), port) for port in sent]
    _keep = [bound(own, port) for port in heard]
    sys.stdout.write("sending\n")
    sys.stdout.flush()
    step_s = 1.0 / packets_per_s
    due_s = time.monotonic()
    while True:
        for flow, port in flows:
            with contextlib.suppress(OSError):
                flow.sendto(PAYLOAD, (peer, port))
        # Steps that were missed are left out: the pace is what matters, not the number.
        due_s = max(due_s + step_s, time.monotonic() - step_s)
        time.sleep(max(0.0, due_s - time.monotonic()))


def ports(text: str) -> list[int]:
    """Ports of a list with commas."""
    return [int(one) for one in text.split(",") if one]


def main(words: list[str]) -> None:
    """See the module's text."""
    match words:
        case [own, peer, packets_per_s, sent, heard]:
            send(own, peer, float(packets_per_s), ports(sent), ports(heard))
        case _:
            sys.exit("usage: OWN PEER PACKETS_PER_S SENT_PORTS HEARD_PORTS")


if __name__ == "__main__":
    main(sys.argv[1:])
