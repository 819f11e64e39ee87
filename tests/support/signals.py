"""TCP flows from alpha to bravo and what the tests of in-band signalling look at."""

from __future__ import annotations

from collections.abc import Callable

from chart_lab.network import Lab

PORT = 5201
RATE_BPS = 100_000_000
DELAY_MS = 10.0
IPV6 = {"alpha": "fd00::1", "mid": "fd00::2", "bravo": "fd00::3"}

SINK = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.socket(family)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
print("listening", flush=True)
connection, digest = listener.accept()[0], hashlib.sha256()
while block := connection.recv(1 << 20):
    digest.update(block)
print(digest.hexdigest(), flush=True)
"""
# Sends for some seconds, or so many octets; then prints the digest and closes.
SOURCE = """
import hashlib, socket, sys, time
connection, digest = socket.create_connection((sys.argv[1], int(sys.argv[2]))), hashlib.sha256()
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
end, left, number = time.monotonic() + float(sys.argv[3]), int(float(sys.argv[4])), 0
while time.monotonic() < end and left > 0:
    block = number.to_bytes(8, "big") * 8192
    block = block[:left]
    connection.sendall(block)
    digest.update(block)
    left -= len(block)
    number += 1
connection.close()
print(digest.hexdigest(), flush=True)
"""


class Flow:
    """One TCP flow from alpha to bravo."""

    def __init__(self, lab: Lab, *, seconds: float = 60, octets: float = 1e12, address: str = "") -> None:
        self._address = address or lab.address("bravo")
        self._sink = lab.popen("bravo", ["/usr/bin/python3", "-c", SINK, self._address, str(PORT)])
        assert self._sink.stdout is not None
        assert self._sink.stdout.readline() == "listening\n"
        command = ["/usr/bin/python3", "-c", SOURCE, self._address, str(PORT), str(seconds), str(octets)]
        self._source = lab.popen("alpha", command)

    def whole(self) -> bool:
        """Waits for the end; whether every octet arrived as it was sent."""
        sent, _ = self._source.communicate(timeout=60)
        got, _ = self._sink.communicate(timeout=60)
        return bool(sent) and sent == got

    def close(self) -> None:
        """Ends both sides at once."""
        for process in (self._source, self._sink):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


Start = Callable[..., Flow]


def control_of(lab: Lab) -> str:
    """Congestion control of alpha's flow to PORT; empty: there is none."""
    told = lab.exec("alpha", ["ss", "-Htin", "state", "established", "dport", "=", f":{PORT}"]).stdout
    lines = [line.split()[0] for line in told.splitlines() if line.startswith("\t")]
    return lines[0] if lines else ""
