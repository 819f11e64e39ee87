"""The wire format of the sensors written a second time, and attacks on a responder with it. Run inside a lab node.

Arguments: key file, responder's address, own address, a third party's address. Prints one JSON object: how many replies
each attack got. Layout: sensors/lib/wire.h.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import socket
import struct
import sys
import time
from pathlib import Path

PORT = 18300
HEADER = struct.Struct(">IBBHHHIQQQIHH")
HELLO, ECHO, ECHO_REPLY = 1, 3, 4
Endpoint = tuple[str, int]


def canonical(endpoint: Endpoint) -> bytes:
    return b"\x04" + ipaddress.IPv4Address(endpoint[0]).packed + bytes(12) + struct.pack(">H", endpoint[1])


def code(secret: bytes, source: Endpoint, destination: Endpoint, head: bytes, rest: bytes) -> bytes:
    covered = canonical(source) + canonical(destination) + head + rest
    return hmac.new(secret, covered, hashlib.sha256).digest()[:16]


def datagram(
    secret: bytes,
    source: Endpoint,
    destination: Endpoint,
    kind: int,
    *,
    token: int = 0,
    sequence: int = 1,
    pad: int = 0,
) -> bytes:
    """A signed datagram of session 77."""
    head = HEADER.pack(0x43485052, 1, kind, 1, 64 + pad, 0, 0, 77, token, time.time_ns(), sequence, 0, 0)
    return head + code(secret, source, destination, head, bytes(pad)) + bytes(pad)


def replies(sock: socket.socket, timeout_s: float = 0.3) -> list[bytes]:
    """All that comes until nothing came for `timeout_s`."""
    sock.settimeout(timeout_s)
    found = []
    try:
        while True:
            found.append(sock.recv(2048))
    except TimeoutError:
        return found


def spoof(source: Endpoint, destination: Endpoint, payload: bytes) -> None:
    """Send a UDP datagram under another source address."""
    length = 8 + len(payload)
    addresses = ipaddress.IPv4Address(source[0]).packed + ipaddress.IPv4Address(destination[0]).packed
    packet = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + addresses
    packet += struct.pack(">HHHH", source[1], destination[1], length, 0) + payload
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.sendto(packet, (destination[0], 0))


def main() -> None:
    secret = bytes.fromhex(Path(sys.argv[1]).read_text().split()[1])
    responder, own, victim = (sys.argv[2], PORT), sys.argv[3], sys.argv[4]
    result: dict[str, int] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((own, 0))
        me = sock.getsockname()
        sock.connect(responder)

        def attempt(name: str, *payloads: bytes) -> list[bytes]:
            for payload in payloads:
                sock.send(payload)
            found = replies(sock)
            result[name] = len(found)
            return found

        hello = datagram(secret, me, responder, HELLO)
        attempt("noise", b"", b"x", bytes(64), b"CHPR" + bytes(1400), bytes(1472))
        attempt("wrong_key", datagram(bytes(32), me, responder, HELLO))
        flipped = [bytearray(hello) for _ in range(64)]
        for position, packet in enumerate(flipped):
            packet[position] ^= 0x10
        attempt("flipped", *map(bytes, flipped))
        spoof((victim, me[1]), responder, hello)
        spoof((own, me[1] + 1), responder, hello)
        result["spoofed"] = len(replies(sock))
        (welcome,) = attempt("honest_hello", hello)
        token = HEADER.unpack(welcome[:48])[8]
        attempt("replayed_hello", hello, hello)
        echo = datagram(secret, me, responder, ECHO, token=token, sequence=5, pad=36)
        (answer,) = attempt("honest_echo", echo)
        result["echo_reply_authentic"] = int(
            answer[48:64] == code(secret, responder, me, answer[:48], answer[64:])
            and HEADER.unpack(answer[:48])[2] == ECHO_REPLY
        )
        result["echo_reply_bytes"] = len(answer)
        attempt("replayed_echo", echo, echo)
        attempt("reply_as_request", answer)
        # A stolen echo, sent on under the victim's address, with its sequence raised.
        spoof((victim, me[1]), responder, datagram(secret, me, responder, ECHO, token=token, sequence=6))
        result["redirected"] = len(replies(sock))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
