"""Packets of a node's interface, captured by tcpdump and read again: what was signalled when, beside the data."""

from __future__ import annotations

import signal as signals
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chart.common import qos
from chart_lab.errors import LabError
from chart_lab.network import Lab

END_TIMEOUT_S = 10.0
SNAPSHOT_OCTETS = 256
_PCAP_HEADER = 24
_RECORD_HEADER = 16
_NANOSECOND_MAGIC = 0xA1B23C4D
_MAGICS = (0xA1B2C3D4, _NANOSECOND_MAGIC)
_RAW_IP = (12, 101)
_ETHERNET = 1
_ETHERNET_HEADER = 14


@dataclass(frozen=True)
class Packet:
    """One captured IP packet: when (seconds since the epoch), its length on the wire, its first octets."""

    at_s: float
    length: int
    octets: bytes

    @property
    def signal(self) -> qos.Parsed | None:
        """The signal in it, when there is a well-formed one (not verified)."""
        try:
            parse = qos.parse_ipv4 if self.octets[0] >> 4 == 4 else qos.parse_ipv6
            return parse(self.octets)
        except qos.QosError:
            return None

    @property
    def transport(self) -> bytes:
        """From the transport header on; options and hop-by-hop headers skipped."""
        if self.octets[0] >> 4 == 4:
            return self.octets[(self.octets[0] & 15) * 4 :]
        return self.octets[40 + (8 * self.octets[41] + 8 if self.octets[6] == 0 else 0) :]

    @property
    def ports(self) -> tuple[int, int]:
        """Source and destination port."""
        source, destination = struct.unpack("!HH", self.transport[:4])
        return source, destination


def read(path: Path) -> Iterator[Packet]:
    """The packets of a capture file. Raises LabError when it is none."""
    data = path.read_bytes()
    if len(data) < _PCAP_HEADER:
        raise LabError(f"{path}: no capture")
    order = "<" if struct.unpack("<I", data[:4])[0] in _MAGICS else ">"
    magic, link_type = struct.unpack(order + "I16xI", data[:_PCAP_HEADER])
    if magic not in _MAGICS or link_type not in (*_RAW_IP, _ETHERNET):
        raise LabError(f"{path}: a capture of another kind (link type {link_type})")
    skip = _ETHERNET_HEADER if link_type == _ETHERNET else 0
    unit = 1e-9 if magic == _NANOSECOND_MAGIC else 1e-6
    offset = _PCAP_HEADER
    while offset + _RECORD_HEADER <= len(data):
        seconds, fraction, kept, length = struct.unpack_from(order + "IIII", data, offset)
        offset += _RECORD_HEADER
        if offset + kept > len(data):
            return
        yield Packet(seconds + fraction * unit, length - skip, data[offset + skip : offset + kept])
        offset += kept


class Capture:
    """tcpdump on one interface, from `with` until its end; then `packets`."""

    def __init__(self, lab: Lab, node: str, interface: str, *expression: str, name: str = "capture") -> None:
        self.lab, self.node = lab, node
        self.path = lab.node_directory(node) / f"{name}.pcap"
        self._command = ["tcpdump", "-i", interface, "-n", "-s", str(SNAPSHOT_OCTETS), "-B", "8192"]
        # At once: the last packets before the end would otherwise stay in a block of the kernel's that is not full.
        self._command += ["--immediate-mode", "-Z", "root", "-w", str(self.path), *expression]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Capture:
        """Begins; ready when it returns. Raises LabError when tcpdump does not start."""
        self.path.unlink(missing_ok=True)
        self._process = self.lab.popen(self.node, self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "listening on" in line:
                break
        else:
            raise LabError(f"tcpdump in node {self.node} does not start")
        return self

    def __exit__(self, *_: object) -> None:
        """Ends tcpdump, which writes what it still has."""
        if self._process is None:
            return
        self._process.send_signal(signals.SIGINT)
        try:
            self._process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def packets(self) -> list[Packet]:
        """What was captured."""
        return list(read(self.path))
