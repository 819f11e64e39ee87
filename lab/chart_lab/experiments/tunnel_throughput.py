"""`tunnel-throughput`: what chart-tunnel costs, over a veth pair with a token bucket: no emulator in between.

Goodput of users' TCP connections through the tunnel beside that of a bare bundle of as many TCP connections as the
tunnel has, on the same path in the same minutes; and the CPU time of both ends together for a gigabit of users'
packets, for TCP (large packets cross the tunnel whole) and for UDP packets of 1200 bytes, each handled by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chart_lab import topology
from chart_lab.errors import LabError, NoisyMachineError
from chart_lab.experiments import itm_tunnel, noise
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, interleaved, temporary_lab
from chart_lab.experiments.itm_tunnel import Tunnel
from chart_lab.network import Lab

RATE_MBIT = 500.0
CONNECTIONS = 8
DURATION_S = 8.0
# The windows have opened and the first queue is full after this long.
WARM_UP_S = 2.0
REPEAT = 3
UDP_BYTES = 1200
INTERFACE = "veth0"
PORT = 7700
SHARE_GOAL = 0.97
CPU_GOAL = 1.0


@dataclass(frozen=True)
class Run:
    """One transfer: bits per second at the receiver, and CPU seconds per gigabit of users' packets in the tunnel."""

    traffic: str
    goodput_bps: float
    cpu_s_per_gbit: float | None = None
    other_cores: float = 0.0


@contextlib.contextmanager
def veth_lab(rate_mbit: float, seed: int) -> Iterator[Lab]:
    """Nodes alpha and bravo on a veth pair; both directions pass a token bucket with 50 ms of queue."""
    nodes = topology.load("two-node").model_copy(update={"links": []})
    with temporary_lab(nodes, seed) as lab:
        peer = ["peer", "name", INTERFACE, "netns", lab.namespace("bravo")]
        lab.exec("alpha", ["ip", "link", "add", INTERFACE, "type", "veth", *peer])
        for node, other, own in (("alpha", "bravo", "192.0.2.1"), ("bravo", "alpha", "192.0.2.2")):
            far = "192.0.2.2" if node == "alpha" else "192.0.2.1"
            lab.exec(node, ["ip", "address", "add", f"{own}/30", "dev", INTERFACE])
            lab.exec(node, ["ip", "link", "set", INTERFACE, "up"])
            lab.exec(node, ["ip", "route", "add", lab.address(other), "via", far, "src", lab.address(node)])
            shaper = ["rate", f"{rate_mbit:g}mbit", "burst", "256k", "latency", "50ms"]
            lab.exec(node, ["tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", *shaper])
        yield lab


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def iperf_server(lab: Lab, address: str, node: str = "bravo") -> Iterator[None]:
    """An iperf3 server in a node that takes one transfer."""
    command = ["iperf3", "--server", "--one-off", "--bind", address, "--port", str(PORT), "--forceflush"]
    server = lab.popen(node, command)
    try:
        assert server.stdout is not None
        if "---" not in server.stdout.readline():
            raise LabError(f"iperf3 does not start in node {node}")
        server.stdout.readline()
        yield
    finally:
        server.kill()
        server.communicate()


def client(
    lab: Lab,
    address: str,
    duration_s: float,
    options: Sequence[str],
    node: str = "alpha",
    warm_up_s: float = WARM_UP_S,
) -> subprocess.Popen[str]:
    """Starts an iperf3 client in a node; what it sends in the warm-up does not count."""
    command = ["iperf3", "--client", address, "--port", str(PORT), "--json", "--time", f"{duration_s:g}"]
    return lab.popen(node, [*command, "--omit", f"{warm_up_s:g}", *options])


def goodput(process: subprocess.Popen[str]) -> float:
    """Bits per second at the receiver after the warm-up."""
    output, _ = process.communicate(timeout=120)
    told: dict[str, Any] = json.loads(output)
    if "error" in told:
        raise LabError(f"iperf3: {told['error']}")
    end: dict[str, dict[str, float]] = told["end"]
    received = end.get("sum_received") or end["sum"]
    return received["bits_per_second"] * (1 - received.get("lost_percent", 0.0) / 100)


def tcp_options(congestion: str, connections: int) -> list[str]:
    """iperf3's options for a bundle."""
    return ["--parallel", str(connections), "--congestion", congestion]


def bare(lab: Lab, congestion: str, connections: int, duration_s: float) -> Run:
    """A bundle of TCP connections without a tunnel."""
    address = lab.address("bravo")
    with iperf_server(lab, address):
        return Run("bare", goodput(client(lab, address, duration_s, tcp_options(congestion, connections))))


def measured(lab: Lab, tunnel: Tunnel, name: str, duration_s: float, options: Sequence[str]) -> Run:
    """A transfer through a tunnel that runs, and what its ends used for it."""

    def account() -> tuple[float, int]:
        seconds = sum(cpu_seconds(process) for process in tunnel.processes.values())
        return seconds, int(tunnel.get()["counters"]["sent_bytes"])

    with iperf_server(lab, itm_tunnel.USER_ADDRESS):
        sender = client(lab, itm_tunnel.USER_ADDRESS, duration_s, options)
        time.sleep(WARM_UP_S)
        before = account()
        time.sleep(duration_s - 0.5)
        after = account()
        gigabits = (after[1] - before[1]) * 8 / 1e9
        return Run(name, goodput(sender), (after[0] - before[0]) / gigabits if gigabits else None)


def through(lab: Lab, congestion: str, connections: int, duration_s: float, rate_mbit: float, traffic: str) -> Run:
    """Users' traffic through a tunnel with m connections."""
    options = ["--connections", str(connections), "--congestion", congestion]
    # Users' queue holds as much as the path's.
    queue = ["--queue-bytes", str(max(500_000, round(rate_mbit * 1e6 / 8 * 0.05)))]
    with Tunnel(lab, "alpha", "bravo", origin_options=[*options, *queue]) as tunnel:
        itm_tunnel.await_state(
            lambda: tunnel.get()["connections"]["established"] == connections, f"{connections} connections"
        )
        if traffic == "udp":
            # Below the bucket's rate: nothing is lost for the sake of a figure.
            udp = ["--udp", "--length", str(UDP_BYTES), "--bitrate", f"{rate_mbit * 0.6:g}M"]
            return measured(lab, tunnel, traffic, duration_s, udp)
        return measured(lab, tunnel, traffic, duration_s, tcp_options(congestion, connections))


def run_once(lab: Lab, settings: Settings, traffic: str) -> Run:
    """One transfer of a kind, and what else used the machine meanwhile."""
    congestion = (settings.congestion or ("cubic",))[0]
    rate_mbit = (settings.rate_mbit or (RATE_MBIT,))[0]
    duration_s = settings.duration_s or DURATION_S
    before = noise.cpu_times(lab)
    if traffic == "bare":
        run = bare(lab, congestion, CONNECTIONS, duration_s)
    else:
        run = through(lab, congestion, CONNECTIONS, duration_s, rate_mbit, traffic)
    after = noise.cpu_times(lab)
    other = ((after.busy_s - before.busy_s) - (after.own_s - before.own_s)) / (after.at_s - before.at_s)
    return Run(run.traffic, run.goodput_bps, run.cpu_s_per_gbit, max(other, 0.0))


def figures(runs: Sequence[Run]) -> list[Figure]:
    """Medians; the share is that of neighbours in time."""

    def of(traffic: str) -> list[Run]:
        return [run for run in runs if run.traffic == traffic]

    shares = [tunnel.goodput_bps / alone.goodput_bps for tunnel, alone in zip(of("tcp"), of("bare"), strict=True)]
    costs = {name: [run.cpu_s_per_gbit for run in of(name) if run.cpu_s_per_gbit] for name in ("tcp", "udp")}
    bare_bps = statistics.median(run.goodput_bps for run in of("bare"))
    return [
        Figure("share_of_bare", statistics.median(shares), "ratio", f">= {SHARE_GOAL:g}"),
        Figure("cpu_s_per_gbit", statistics.median(costs["tcp"]), "s", f"<= {CPU_GOAL:g}"),
        Figure("cpu_s_per_gbit/traffic=udp", statistics.median(costs["udp"]), "s", f"<= {CPU_GOAL:g}"),
        Figure("goodput_bps", statistics.median(run.goodput_bps for run in of("tcp")), "bit/s", peer=bare_bps),
        Figure("share_of_bare_worst", min(shares), "ratio"),
    ]


def table(runs: Sequence[Run]) -> str:
    """Markdown: one line per transfer."""
    lines = ["# What the tunnel costs", "", "| traffic | Mb/s at the receiver | CPU s per Gbit |"]
    lines.append("| --- | --- | --- |")
    lines += [
        f"| {run.traffic} | {run.goodput_bps / 1e6:.1f} "
        f"| {'' if run.cpu_s_per_gbit is None else format(run.cpu_s_per_gbit, '.2f')} |"
        for run in runs
    ]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """Runs all transfers, there and back."""
    rate_mbit = (settings.rate_mbit or (RATE_MBIT,))[0]
    kinds = ("bare", "tcp", "udp")
    runs: list[Run] = []
    repeat = settings.repeat or REPEAT
    with veth_lab(rate_mbit, settings.seed) as lab:
        for number, traffic in interleaved(kinds, repeat):
            report(f"{traffic}, {number + 1} of {repeat}", len(runs) / (repeat * len(kinds)))
            one = run_once(lab, settings, traffic)
            if settings.judge_noise and one.other_cores > noise.OTHER_LIMIT_CORES:
                noise.await_quiet()
                one = run_once(lab, settings, traffic)
                if one.other_cores > noise.OTHER_LIMIT_CORES:
                    raise NoisyMachineError(f"{traffic}: other processes used {one.other_cores:.2f} cores")
            runs.append(one)
    return Outcome(figures(runs), table(runs), [asdict(one) for one in runs])


EXPERIMENT = Experiment(
    "tunnel-throughput", "Elastic tunnel: goodput beside a bare bundle, CPU time per gigabit, over veth.", run
)
