"""Calls of telephony in a lab: a datagram every 20 ms, 205 octets with its IP header, and what became of each."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from chart_lab.network import Lab

PACKETS_PER_S = 50
PACKET_BYTES = 205
EXPEDITED = 46

# Prints when it is bound, then per datagram its number and its one-way delay (ms), until nothing comes for two seconds.
# Times of arrival are the kernel's (SO_TIMESTAMPNS), so that the scheduling of this process counts for nothing.
RECEIVER = """
import json, socket, struct, sys
SO_TIMESTAMPNS = 35
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.settimeout(20)
print("bound", flush=True)
seen = []
try:
    while True:
        data, control, _, _ = listener.recvmsg(2048, 256)
        listener.settimeout(2)
        if not data:
            continue
        number, sent_ns = struct.unpack("!QQ", data[:16])
        seconds, ns = struct.unpack("qq", control[0][2][:16])
        seen.append((number, (seconds * 10**9 + ns - sent_ns) / 1e6))
except TimeoutError:
    pass
print(json.dumps(seen))
"""
# Address, port, DSCP, packets, octets of a packet with its headers, seconds between two.
SENDER = """
import socket, struct, sys, time
target, code_point, packets, size = (sys.argv[1], int(sys.argv[2])), *map(int, sys.argv[3:6])
apart_s = float(sys.argv[6])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, code_point << 2)
began = time.monotonic()
for number in range(packets):
    time.sleep(max(0.0, began + number * apart_s - time.monotonic()))
    sender.sendto(struct.pack("!QQ", number, time.time_ns()).ljust(size - 28, b"v"), target)
"""


@dataclass(frozen=True)
class Heard:
    """What came of a call: its packets in order of arrival, number and one-way delay (ms)."""

    sent: int
    packets: tuple[tuple[int, float], ...]

    def delays_ms(self, from_s: float = 0.0) -> list[float]:
        """One-way delays of the packets that were sent from so long after the first on."""
        return [delay for number, delay in self.packets if number >= from_s * PACKETS_PER_S]

    def lost(self, from_s: float = 0.0) -> int:
        """How many of those never came."""
        first = round(from_s * PACKETS_PER_S)
        return len(set(range(first, self.sent)) - {number for number, _ in self.packets})


class Call:
    """One direction of a call, by programs that know nothing of CHART."""

    def __init__(self, lab: Lab, caller: str, callee: str, port: int, *, dscp: int = 0, seconds: float) -> None:
        self.sent, self._seconds = round(seconds * PACKETS_PER_S), seconds
        python = ["/usr/bin/python3", "-c"]
        self._receiver = lab.popen(callee, [*python, RECEIVER, lab.address(callee), str(port)])
        assert self._receiver.stdout is not None
        assert self._receiver.stdout.readline() == "bound\n"
        numbers = [port, dscp, self.sent, PACKET_BYTES, 1 / PACKETS_PER_S]
        self._sender = lab.popen(
            caller, [*python, SENDER, lab.address(callee), *map(str, numbers)], stdout=subprocess.DEVNULL
        )

    def finish(self) -> Heard:
        """Waits for the end of the call."""
        assert self._sender.wait(timeout=self._seconds + 20) == 0
        output, _ = self._receiver.communicate(timeout=30)
        return Heard(self.sent, tuple((number, delay) for number, delay in json.loads(output)))

    def close(self) -> None:
        """Ends it, whatever it is doing."""
        for process in (self._sender, self._receiver):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
