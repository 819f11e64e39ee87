"""A receiver of the experiment `quick-start` that reports a higher rate than arrived.

    python -m chart_lab.quick_start_liar PORT STEPS

Answers every SYN to the port with a SYN-ACK of its own making, whose Quick-Start response (RFC 4782, section 4.2) has a
rate that many steps above the one that arrived. A socket that listens, and takes nothing that arrives, keeps the kernel
from answering. Says `ready`, writes a line of JSON for every SYN and ends with its standard input.
"""

from __future__ import annotations

import ctypes
import json
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Sequence

from chart_lab.quick_start_endpoint import REQUEST_KIND, options_of

RESPONSE_KIND = 27
RATE_MAX = 15
_ETH_P_IP = 0x0800
_TCP, _SYN, _ACK = 6, 0x02, 0x10
_SO_ATTACH_FILTER = 26
_RETURN_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


def lie(packet: bytes, steps: int) -> bytes | None:
    """The response to the request in a SYN: its rate raised; None: there is none, or no higher rate."""
    request = options_of(packet).get(REQUEST_KIND)
    if request is None or not request[2] & 15 or (request[2] & 15) + steps > RATE_MAX:
        return None
    rate = (request[2] & 15) + steps
    return bytes([RESPONSE_KIND, 8, rate, (packet[8] - request[3]) & 255]) + request[4:8]


def _sum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def syn_ack(packet: bytes, response: bytes) -> bytes:
    """The IPv4 packet that answers a SYN."""
    at = (packet[0] & 15) * 4
    source, destination = packet[12:16], packet[16:20]
    sequence = int.from_bytes(packet[at + 4 : at + 8])
    options = struct.pack(">BBH", 2, 4, 1460) + response
    header = packet[at + 2 : at + 4] + packet[at : at + 2]
    header += struct.pack(">II", secrets.randbits(32), (sequence + 1) & 0xFFFFFFFF)
    header += struct.pack(">BBHHH", (20 + len(options)) // 4 << 4, _SYN | _ACK, 65535, 0, 0) + options
    pseudo = destination + source + struct.pack(">BBH", 0, _TCP, len(header))
    header = header[:16] + struct.pack(">H", _sum(pseudo + header)) + header[18:]
    length = 20 + len(header)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0x4000, 64, _TCP, 0) + destination + source
    return ip + header


def _silent(port: int) -> socket.socket:
    """A socket that listens and takes nothing."""
    listening = socket.create_server(("0.0.0.0", port))  # noqa: S104 - a namespace of the lab
    program = ctypes.create_string_buffer(_RETURN_NOTHING)
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", 1, ctypes.addressof(program)))
    return listening


def answer(port: int, steps: int) -> None:
    """Lie to every SYN, for ever."""
    with (
        _silent(port),
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP)) as arriving,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sending,
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            packet, address = arriving.recvfrom(200)
            at = (packet[0] & 15) * 4
            if address[2] == socket.PACKET_OUTGOING or packet[9] != _TCP or len(packet) < at + 20:
                continue
            if int.from_bytes(packet[at + 2 : at + 4]) != port or packet[at + 13] & (_SYN | _ACK) != _SYN:
                continue
            response = lie(packet, steps)
            if response is not None:
                sending.sendto(syn_ack(packet, response), (socket.inet_ntoa(packet[12:16]), 0))
            sys.stdout.write(
                json.dumps({"syn": int.from_bytes(packet[at : at + 2]), "lied": response is not None}) + "\n"
            )
            sys.stdout.flush()


def main(words: Sequence[str]) -> None:
    """The command line."""
    threading.Thread(target=answer, args=(int(words[0]), int(words[1])), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
