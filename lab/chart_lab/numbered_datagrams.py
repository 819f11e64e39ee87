"""A steady stream of numbered UDP datagrams, and who writes down when each arrives: what an outage is seen by.

    python -m chart_lab.numbered_datagrams send OWN PEER PORT PACKETS_PER_S
    python -m chart_lab.numbered_datagrams hear OWN PORT FILE

Times of arrival are the kernel's (SO_TIMESTAMPNS), so that a receiver that waits for a processor adds nothing. A record
of the file is number (u64) and nanoseconds since the epoch (u64), little endian. Both run until they are ended; each
says `ready` when it has begun.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

RECORD = struct.Struct("<QQ")
NUMBER = struct.Struct("<Q")
# struct timespec of 64-bit Linux.
TIMESPEC = struct.Struct("<qq")
SO_TIMESTAMPNS = 35
PAYLOAD_OCTETS = 100
RECEIVE_BUFFER_OCTETS = 4 << 20
# Records are written at least this often, so that a file can be read while it grows.
FLUSH_S = 0.1


def ready() -> None:
    """Tell whoever started this that it has begun."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def record(flow: socket.socket, file: Path, receive: Callable[[socket.socket], tuple[int, int]]) -> None:
    """Writes down what ``receive`` makes of each datagram, two numbers, without end."""
    flow.settimeout(FLUSH_S)
    flushed_s = time.monotonic()
    with file.open("wb") as output:
        ready()
        while True:
            with contextlib.suppress(TimeoutError):
                output.write(RECORD.pack(*receive(flow)))
            if time.monotonic() - flushed_s > FLUSH_S:
                output.flush()
                flushed_s = time.monotonic()


def send(own: str, peer: str, port: int, packets_per_s: float) -> None:
    """Datagrams from 1 on. One that a missing route refuses has its number all the same."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
        flow.bind((own, port))
        flow.connect((peer, port))
        ready()
        step_s = 1.0 / packets_per_s
        padding = bytes(PAYLOAD_OCTETS - NUMBER.size)
        number, due_s = 0, time.monotonic()
        while True:
            number += 1
            with contextlib.suppress(OSError):
                flow.send(NUMBER.pack(number) + padding)
            due_s = max(due_s + step_s, time.monotonic() - step_s)
            time.sleep(max(0.0, due_s - time.monotonic()))


def hear(own: str, port: int, file: Path) -> None:
    """Writes down what comes."""

    def receive(flow: socket.socket) -> tuple[int, int]:
        data, ancillary, _, _ = flow.recvmsg(PAYLOAD_OCTETS, socket.CMSG_SPACE(TIMESPEC.size))
        seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
        return NUMBER.unpack_from(data)[0], seconds * 1_000_000_000 + nanoseconds

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
        flow.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_OCTETS)
        flow.bind((own, port))
        record(flow, file, receive)


def read(file: Path) -> Iterator[tuple[int, float]]:
    """The number of each record and its time (seconds since the epoch): of everything written so far, in order of
    arrival.
    """
    data = file.read_bytes()
    whole = len(data) - len(data) % RECORD.size
    for number, at_ns in RECORD.iter_unpack(data[:whole]):
        yield number, at_ns / 1e9


def main(words: list[str]) -> None:
    """See the module's text."""
    match words:
        case ["send", own, peer, port, packets_per_s]:
            send(own, peer, int(port), float(packets_per_s))
        case ["hear", own, port, file]:
            hear(own, int(port), Path(file))
        case _:
            sys.exit("usage: send OWN PEER PORT PACKETS_PER_S | hear OWN PORT FILE")


if __name__ == "__main__":
    main(sys.argv[1:])
