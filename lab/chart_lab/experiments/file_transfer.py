"""Files over networks of a lab by programs that know nothing of CHART: pyftpdlib and uvicorn serve, curl fetches."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chart.common.processes import end_process
from chart_lab import file_server
from chart_lab.errors import LabError
from chart_lab.experiments.traffic import await_listening
from chart_lab.network import Lab

Protocol = Literal["ftp", "http"]
FTP_PORT, HTTP_PORT = 2121, 8080
# From which ports of the server a file comes; pyftpdlib takes no range of a single one.
DATA_PORTS: Mapping[Protocol, tuple[int, ...]] = {"ftp": (2119, 2120), "http": (HTTP_PORT,)}
START_TIMEOUT_S = 20.0
# curl tells that --max-time was over.
CURL_TIMED_OUT = 28
BLOCK_BYTES = 1 << 20


def write_file(path: Path, size_bytes: int, seed: int) -> str:
    """A file of random octets; returns its SHA-256."""
    digest, source, left = hashlib.sha256(), random.Random(seed), size_bytes  # noqa: S311 - nothing secret
    with path.open("wb") as file:
        while left > 0:
            block = source.randbytes(min(left, BLOCK_BYTES))
            digest.update(block)
            file.write(block)
            left -= len(block)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def server_commands(address: str, folder: Path) -> dict[Protocol, list[str]]:
    """How each server is started on an address. Raises LabError when the FTP server is not installed."""
    if importlib.util.find_spec("pyftpdlib") is None:
        raise LabError("the FTP server (Python package pyftpdlib) is not installed: make setup")
    python = [sys.executable, "-m"]
    passive = "-".join(map(str, DATA_PORTS["ftp"]))
    ftp = ["pyftpdlib", "-i", address, "-p", str(FTP_PORT), "-d", str(folder), "-r", passive]
    http = ["uvicorn", "--factory", "chart_lab.file_server:application", "--host", address, "--port", str(HTTP_PORT)]
    return {"ftp": [*python, *ftp], "http": [*python, *http, "--log-level", "warning"]}


@contextmanager
def servers(lab: Lab, node: str, folder: Path) -> Iterator[None]:
    """An FTP and an HTTP server of a folder on a node, ready when the block begins. Raises LabError."""
    ports: Mapping[Protocol, int] = {"ftp": FTP_PORT, "http": HTTP_PORT}
    with ExitStack() as stack:
        for protocol, command in server_commands(lab.address(node), folder).items():
            log = lab.node_directory(node) / f"{protocol}.log"
            output = stack.enter_context(log.open("w"))
            environment = {**os.environ, file_server.FOLDER: str(folder)}
            process = lab.popen(node, command, stdout=output, stderr=output, env=environment)
            stack.callback(end_process, process)
            try:
                await_listening(lab, node, ports[protocol], process, START_TIMEOUT_S)
            except LabError as error:
                raise LabError(f"the {protocol} server does not start: {log.read_text().strip()[-500:]}") from error
        yield


def server_controls(lab: Lab, node: str, protocol: Protocol) -> list[str]:
    """The congestion controls of what a server sends files through just now, one per connection."""
    wanted = " or ".join(f"sport = :{port}" for port in DATA_PORTS[protocol])
    told = lab.exec(node, ["ss", "-Htin", "state", "established", f"( {wanted} )"]).stdout
    return [line.split()[0] for line in told.splitlines() if line.startswith("\t")]


@dataclass(frozen=True)
class Fetched:
    """What became of one file: seconds from the start of curl to the last octet, or to when it was given up."""

    protocol: Protocol
    seconds: float
    received_bytes: int
    complete: bool


class Fetch:
    """curl on a node, on its way."""

    def __init__(self, lab: Lab, node: str, server: str, protocol: Protocol, name: str, limit_s: float) -> None:
        self.protocol = protocol
        self.file = lab.node_directory(node) / f"{protocol}-{name}"
        port = FTP_PORT if protocol == "ftp" else HTTP_PORT
        url = f"{protocol}://{lab.address(server)}:{port}/{name}"
        self.limit_s = limit_s
        self._process = lab.popen(
            node,
            [*self.command(limit_s), "--output", str(self.file), url],
            stderr=subprocess.PIPE,
        )

    @staticmethod
    def command(limit_s: float) -> Sequence[str]:
        """curl, which writes what comes at once, gives up after so long, and tells about it as JSON."""
        told = ["--silent", "--show-error", "--fail", "--no-buffer", "--write-out", "%{json}"]
        # No settings of whoever runs the experiment, and no proxy of the machine's.
        return ["curl", "--disable", "--noproxy", "*", *told, "--max-time", f"{limit_s:g}"]

    def received_bytes(self) -> int:
        """How much has been written so far."""
        try:
            return self.file.stat().st_size
        except FileNotFoundError:
            return 0

    def over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def finish(self, sha256: str) -> Fetched:
        """Waits for the end. Raises LabError when curl failed or the octets are not those that were sent."""
        try:
            output, told = self._process.communicate(timeout=self.limit_s + START_TIMEOUT_S)
        finally:
            self.close()
        if self._process.returncode not in (0, CURL_TIMED_OUT):
            raise LabError(f"curl ended with {self._process.returncode} ({self.protocol}): {told.strip()[-300:]}")
        complete = self._process.returncode == 0
        if complete and digest_of(self.file) != sha256:
            raise LabError(f"the file that came by {self.protocol} is not the one that was sent")
        return Fetched(self.protocol, float(json.loads(output)["time_total"]), self.received_bytes(), complete)

    def close(self) -> None:
        """Ends it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
