"""What the experiments of A Differentiated Services Implementation for High-Performance TCP Flows share: the network
`garnet`, premium grants on every element of a path, and best-effort traffic that presses against them.

The edge polices and marks (EF), both it and the core queue by class; the premium host sends at its rate.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from chart.common.processes import end_process
from chart_lab.errors import LabError
from chart_lab.experiments import agents
from chart_lab.network import Lab
from chart_lab.programs import program

PREMIUM, COMPETITOR, EDGE, CORE, SINK = "premium", "competitor", "edge", "core", "sink"
NARROW_LINK = f"{EDGE}-{CORE}"
NARROW_BPS = 100_000_000
BASE_RTT_MS = 3.0
# Time at the rate that the edge's buckets hold: rtt + qt of section 5, with room for a group of packets.
DEPTH_MS = 10
# From delay priority 128 on, and with buckets of at most one round trip, a guaranteed flow is expedited.
EXPEDITED_PRIORITY, EXPEDITED_BURST = 200, 3
TRAFFIC_LIMIT_S = 600
APPLY_LIMIT_S = 5.0


def premium_grant(lab: Lab, request_id: str, port: int, rate_bps: int, *, sending: bool) -> dict[str, Any]:
    """A grant of a rate file for one premium flow: its guaranteed rate, in the expedited class."""
    grant = agents.grant(request_id, lab.address(PREMIUM), lab.address(SINK), 0, TRAFFIC_LIMIT_S)
    grant["selector"] |= {"destination_port": port}
    return grant | {"guaranteed_bps": rate_bps, "expedited": True, "sending": sending}


def grants_of(lab: Lab, rates: Mapping[int, int]) -> dict[str, list[dict[str, Any]]]:
    """The grants of each node of the path: port of a flow to its guaranteed rate."""
    return {
        node: [
            premium_grant(lab, f"premium-{port}", port, rate, sending=node == PREMIUM) for port, rate in rates.items()
        ]
        for node in (PREMIUM, EDGE, CORE)
    }


def requests_of(rates: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """The same as requests over REST: delay priority and bucket are those of expedited flows."""
    for port, rate_bps in rates.items():
        yield {
            "source": PREMIUM,
            "destination": SINK,
            "protocol": "tcp",
            "destination_port": port,
            "service": "guaranteed",
            "guaranteed_bps": rate_bps,
            "delay_priority": EXPEDITED_PRIORITY,
            "burst_tolerance": EXPEDITED_BURST,
        }


def state(lab: Lab, rates: Mapping[int, int]) -> None:
    """Tell every element of the path other rates; returns when all have them. Raises LabError."""
    for node, grants in grants_of(lab, rates).items():
        path = lab.node_directory(node) / "rates.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"enforcement": "enforce", "grants": grants}))
        fresh.replace(path)
    deadline = time.monotonic() + APPLY_LIMIT_S
    waiting = [PREMIUM, EDGE, CORE]
    while waiting := [node for node in waiting if applied(lab, node) != rates]:
        if time.monotonic() > deadline:
            raise LabError(f"after {APPLY_LIMIT_S:g} s an element has not taken the rates it was told")
        time.sleep(0.02)


def applied(lab: Lab, node: str) -> dict[int, int]:
    """Port of each premium flow to the rate that an element holds for it."""
    told = json.loads(lab.exec(node, [*agents.command(lab, node), "--status", "--json"]).stdout)
    return {int(one["request_id"].split("-")[1]): int(one["guaranteed_bps"]) for one in told["grants"]}


@contextmanager
def domain(lab: Lab, rates: Mapping[int, int]) -> Iterator[None]:
    """Agents on the premium host, the edge and the core, with these grants; the edge polices what comes in."""
    edge = ["--edge-exceed", "drop", "--edge-depth-ms", str(DEPTH_MS)]
    edge += [word for host in (PREMIUM, COMPETITOR) for word in ("--edge", f"to-{host}")]
    with agents.agents(lab, grants_of(lab, rates), {EDGE: edge}):
        yield


class BestEffort:
    """UDP datagrams from the competitor to the sink at a mean rate of IP packets, as its generator sends them."""

    def __init__(self, lab: Lab, rate_bps: float, packet_bytes: int, seed: int) -> None:
        self._lab, self._packet_bytes = lab, packet_bytes
        command: Sequence[str] = [
            str(program("sensors/tools/cross-traffic")),
            *("--destination", lab.address(SINK), "--rate-bps", f"{rate_bps:.0f}"),
            *("--packet-bytes", str(packet_bytes), "--duration-s", str(TRAFFIC_LIMIT_S), "--seed", str(seed)),
        ]
        self._process = lab.popen(COMPETITOR, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def received_bytes(self) -> int:
        """Octets of IP that have come to the sink, whether somebody listens or not."""
        if self._process.poll() is not None:
            raise LabError("the best-effort traffic ended too early")
        told = self._lab.exec(SINK, ["nstat", "-asz", "UdpInDatagrams", "UdpNoPorts"]).stdout
        packets = sum(int(line.split()[1]) for line in told.splitlines() if line.startswith("Udp"))
        return packets * self._packet_bytes

    def close(self) -> None:
        """Ends it."""
        end_process(self._process)


@contextmanager
def best_effort(lab: Lab, rate_bps: float, *, packet_bytes: int = 1500, seed: int = 1) -> Iterator[BestEffort]:
    """Best-effort traffic for the length of the block."""
    traffic = BestEffort(lab, rate_bps, packet_bytes, seed)
    try:
        yield traffic
    finally:
        traffic.close()
