"""Bulk transfers through a lab and what is read off them (lab/tools/bulk.c).

Goodput is the bytes at the receiver from the first SYN on, divided by the time.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Literal, cast

from chart_lab.errors import LabError
from chart_lab.experiments.framework import quantile
from chart_lab.network import Lab
from chart_lab.programs import program

Direction = Literal["upload", "download"]
END_PATIENCE_S = 20.0
PORT = 5001
# An explicit-rate flow may fill the queue for this long after its first round trip (signalling.md, "What good means").
SETTLING_S = 0.2
# Octets of payload in a full segment with timestamps, and their part of the packet.
SEGMENT_BYTES = 1448
PAYLOAD_SHARE = SEGMENT_BYTES / 1500
LISTENING_LIMIT_S = 5.0


@dataclass(frozen=True)
class Account:
    """What sender and receiver kept of one transfer; times are nanoseconds of CLOCK_MONOTONIC."""

    syn_ns: int
    established_ns: int
    congestion: str
    receiver_start_ns: int
    bin_ns: int
    bins: tuple[int, ...]
    rtt_at_ns: tuple[int, ...]
    rtt_us: tuple[int, ...]
    retransmitted: int

    def bytes_until(self, seconds: float) -> float:
        """Bytes that had arrived this many seconds after the SYN; within a bin they count evenly."""
        end_ns = self.syn_ns + seconds * 1e9
        total = 0.0
        for number, count in enumerate(self.bins):
            start_ns = self.receiver_start_ns + number * self.bin_ns
            total += count * min(1.0, max(0.0, (end_ns - start_ns) / self.bin_ns))
        return total

    def goodput_bps(self, duration_s: float, start_s: float = 0.0) -> float:
        """Payload bits per second between two times after the SYN."""
        return (self.bytes_until(duration_s) - self.bytes_until(start_s)) * 8 / (duration_s - start_s)

    def rtt_inflation_ms(self, base_rtt_ms: float, share: float = 0.99, after_s: float = 0.0) -> float | None:
        """Quantile of TCP_INFO's RTT above the base, once the join has settled and so long after the SYN; None without
        samples.
        """
        from_ns = max(self.established_ns + SETTLING_S * 1e9, self.syn_ns + after_s * 1e9)
        settled = [rtt for at, rtt in zip(self.rtt_at_ns, self.rtt_us, strict=True) if at >= from_ns and rtt > 0]
        return quantile(settled, share) / 1e3 - base_rtt_ms if settled else None


def await_listening(
    lab: Lab, node: str, port: int, server: subprocess.Popen[str], limit_s: float = LISTENING_LIMIT_S
) -> None:
    """Returns when a server of a node listens. Raises LabError when it ended or takes longer than `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not lab.exec(node, ["ss", "-Hltn", "sport", "=", f":{port}"]).stdout.strip():
        if server.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"nothing listens on port {port} of {node}")
        time.sleep(0.02)


def account(sender: dict[str, Any], receiver: dict[str, Any]) -> Account:
    """Joins the JSON of both sides."""
    return Account(
        syn_ns=sender["syn_ns"] or receiver["syn_ns"],
        established_ns=sender["established_ns"],
        congestion=sender["congestion"],
        receiver_start_ns=receiver["established_ns"],
        bin_ns=receiver["bin_ns"],
        bins=tuple(receiver["bins"]),
        rtt_at_ns=tuple(sender["at_ns"]),
        rtt_us=tuple(sender["rtt_us"]),
        retransmitted=sender["retransmitted"][-1] if sender["retransmitted"] else 0,
    )


class Transfer:
    """One transfer from sender to receiver; on download the receiver opens the connection.

    ``in_band``: the sending program asks inside its own packets for all the rate that the path may give.
    """

    def __init__(
        self,
        lab: Lab,
        sender: str,
        receiver: str,
        *,
        duration_s: float,
        congestion: str | None = None,
        direction: Direction = "upload",
        port: int = PORT,
        in_band: bool = False,
    ) -> None:
        self.duration_s = duration_s
        listener = receiver if direction == "upload" else sender
        roles = {sender: "send", receiver: "receive"}
        connector = sender if listener == receiver else receiver
        address = f"{lab.address(listener)}:{port}"
        own = ["--congestion", congestion] if congestion else []
        own += ["--available"] if in_band else []
        options = {sender: ["--duration-s", f"{duration_s:g}", *own], receiver: []}
        self._processes = {}
        tool = str(program("lab/bulk"))
        listening = lab.popen(
            listener, [tool, roles[listener], "--listen", address, *options[listener]], stderr=subprocess.PIPE
        )
        self._processes[roles[listener]] = listening
        assert listening.stderr is not None
        line = listening.stderr.readline()
        if "listening" not in line:
            raise LabError(f"{address} in node {listener}: {line.strip() or 'bulk ended'}")
        bound = ["--bind", lab.address(connector)]
        self._processes[roles[connector]] = lab.popen(
            connector,
            [tool, roles[connector], "--connect", address, *bound, *options[connector]],
            stderr=subprocess.PIPE,
        )

    def finish(self) -> Account:
        """Waits for the end and returns the account of both sides. Raises LabError when the transfer failed."""
        results = {}
        try:
            for role in ("send", "receive"):
                process = self._processes[role]
                if role == "receive":
                    process.terminate()
                try:
                    output, told = process.communicate(timeout=self.duration_s + END_PATIENCE_S)
                except subprocess.TimeoutExpired:
                    raise LabError(f"the {role}ing side of a transfer does not end") from None
                if process.returncode != 0:
                    raise LabError(f"the {role}ing side of a transfer failed: {told.strip()}")
                results[role] = cast("dict[str, Any]", json.loads(output))
        finally:
            self.close()
        return account(results["send"], results["receive"])

    def close(self) -> None:
        """Ends both sides, whatever they are doing."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
