"""`spread`: whether flows fill two unequal paths.

`two-path` through the overlay, the northern path twice as fast as the southern: several TCP connections, each with the
path that it took first, beside the same connections when all take the best path (Bavier et al., Increasing TCP
Throughput with an Enhanced Internet Control Plane, section III: flows spread over paths of nearly equal cost).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from chart_lab import topology
from chart_lab.experiments import agents, overlay_nodes
from chart_lab.experiments.failover import DESTINATION, OWNED, SOURCE, wide_area
from chart_lab.experiments.flow_moves import PATHS, await_good
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, interleaved, temporary_lab
from chart_lab.experiments.overlay_throughput import OVERLAY, ceiling_bps
from chart_lab.experiments.tunnel_throughput import client, goodput, iperf_server, tcp_options
from chart_lab.network import Lab
from chart_lab.topology import Topology

NORTH_MBIT, SOUTH_MBIT = 60.0, 30.0
NORTH_MS, SOUTH_MS = 10.0, 11.0
CONNECTIONS = 12
DURATION_S, REPEAT = 20.0, 3
SPREAD, ONE_PATH = "spread", "one path"
CHOICES: Mapping[str, int] = {SPREAD: PATHS, ONE_PATH: 0}
GOAL = 0.9


@dataclass(frozen=True)
class Run:
    """One bundle of connections: how paths were chosen, bits of payload per second."""

    way: str
    goodput_bps: float


def network(base: Topology) -> Topology:
    """`two-path` with unequal paths that lose nothing."""
    return wide_area(
        base, {"rate_mbit": NORTH_MBIT, "delay_ms": NORTH_MS}, {"rate_mbit": SOUTH_MBIT, "delay_ms": SOUTH_MS}
    )


def transfer(lab: Lab, way: str, duration_s: float) -> Run:
    """One bundle from host to host."""
    files = overlay_nodes.write(lab, OWNED, choices=CHOICES[way])
    with agents.running(lab, {node: ["--overlay-file", str(path)] for node, path in files.items()}):
        overlay_nodes.await_alive(lab, OWNED)
        if CHOICES[way]:
            await_good(lab)
        with iperf_server(lab, lab.address(DESTINATION), DESTINATION):
            options = tcp_options("cubic", CONNECTIONS)
            return Run(way, goodput(client(lab, lab.address(DESTINATION), duration_s, options, SOURCE)))


def figures(runs: Sequence[Run]) -> list[Figure]:
    """Medians, as shares of what the headers leave of both paths."""
    both_bps = ceiling_bps((NORTH_MBIT + SOUTH_MBIT) * 1e6, OVERLAY)

    def median(way: str) -> float:
        return statistics.median(one.goodput_bps for one in runs if one.way == way)

    return [
        Figure("share_of_both", median(SPREAD) / both_bps, "ratio", f">= {GOAL}", median(ONE_PATH) / both_bps),
        Figure("goodput_mbps", median(SPREAD) / 1e6, "Mb/s", None, median(ONE_PATH) / 1e6),
    ]


def run(settings: Settings, report: Report) -> Outcome:
    """Both ways to choose, in turns. Raises LabError."""
    repeat, runs = settings.repeat or REPEAT, list[Run]()
    with temporary_lab(network(topology.load("two-path")), settings.seed) as lab:
        for number, way in interleaved((SPREAD, ONE_PATH), repeat):
            report(f"{way}, {number + 1} of {repeat}", len(runs) / (2 * repeat))
            runs.append(transfer(lab, way, settings.duration_s or DURATION_S))
            time.sleep(0.5)
    lines = ["# Connections over two unequal paths", "", "| paths | goodput Mb/s |", "| --- | --- |"]
    lines += [f"| {one.way} | {one.goodput_bps / 1e6:.1f} |" for one in runs]
    return Outcome(figures(runs), "\n".join(lines) + "\n", [asdict(one) for one in runs])


EXPERIMENT = Experiment("spread", "Whether flows fill two unequal paths of the overlay.", run)
