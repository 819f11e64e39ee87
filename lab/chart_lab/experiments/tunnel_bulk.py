"""`tunnel-bulk`: one CUBIC flow of a user through a tunnel that PI keeps at its target beside cross traffic.

The set-up is that of Guirguis et al., section 4.1; the user is one bulk transfer instead of packets without end, so
that TCP runs inside TCP: packets spread over m connections have to come out in order and in time for the flow to use
the whole tunnel. Goodput over B*, where B* counts IP headers of the tunnel's own packets, as the paper's packets do.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from chart_lab.experiments import itm_tunnel, noise
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, temporary_lab
from chart_lab.experiments.itm_run import (
    BOTTLENECK,
    PACKET_BYTES,
    Bottleneck,
    CrossTraffic,
    Loop,
    Run,
    Scenario,
    asked_path,
    lab_topology,
    make_controller,
)
from chart_lab.experiments.itm_tunnel import Tunnel
from chart_lab.experiments.tunnel_throughput import client, goodput, iperf_server

PATH = Bottleneck(16, 2, 2.0)
TARGET_PPS = 900.0
CROSS = 10
CONNECTIONS = 10
DURATION_S = 60.0
# Controller and flow have found their level.
WARM_UP_S = 16.0
GOAL = 0.9


@dataclass(frozen=True)
class Bulk:
    """One run: the flow's goodput, the tunnel's rate and the target in force, all in bits per second."""

    goodput_bps: float
    tunnel_bps: float
    target_bps: float
    late_packets: int
    complaint: str | None


def run_once(settings: Settings, seed: int) -> Bulk:
    """One transfer."""
    path = asked_path(settings, PATH)
    duration_s = settings.duration_s or DURATION_S
    target_pps = (settings.target_pps or (TARGET_PPS * path.rate_mbit / PATH.rate_mbit,))[0]
    scenario = Scenario("bulk", ((0.0, target_pps),), ((0.0, float(CROSS)),), path, duration_s=duration_s)
    run = Run(scenario, "pi", 1.0, seed)
    congestion = (settings.congestion or ("reno",))[0]
    options = ["--congestion", congestion, "--connections", str(CONNECTIONS)]
    options += ["--period-ms", str(round(path.period_s * 1000)), "--queue-bytes", "200000"]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(temporary_lab(lab_topology(path), seed))
        tunnel = stack.enter_context(Tunnel(lab, "origin", "destination", origin_options=options))
        cross = CrossTraffic(lab, congestion)
        stack.callback(cross.close)
        stack.enter_context(iperf_server(lab, itm_tunnel.USER_ADDRESS, "destination"))
        flow = client(lab, itm_tunnel.USER_ADDRESS, duration_s, ["--congestion", "cubic"], "origin", WARM_UP_S)
        lab.reset_ground_truth(BOTTLENECK)
        before = noise.cpu_times(lab)
        Loop(run, tunnel, cross, make_controller("pi", path)).until(WARM_UP_S + duration_s)
        judged = noise.judge(before, noise.cpu_times(lab), lab.ground_truth(BOTTLENECK))
        late = int(tunnel.get("destination")["counters"]["late_packets"])
        rates, _ = run.between(WARM_UP_S, WARM_UP_S + duration_s)
        bits = 8 * PACKET_BYTES
        return Bulk(goodput(flow), statistics.fmean(rates) * bits, target_pps * bits, late, judged.complaint())


def figures(runs: Sequence[Bulk]) -> list[Figure]:
    """Medians."""
    shares = [one.goodput_bps / one.target_bps for one in runs]
    return [
        Figure("bulk_share_of_target", statistics.median(shares), "ratio", f">= {GOAL:g}"),
        Figure("bulk_share_of_tunnel", statistics.median(one.goodput_bps / one.tunnel_bps for one in runs), "ratio"),
        Figure("tunnel_share_of_target", statistics.median(one.tunnel_bps / one.target_bps for one in runs), "ratio"),
        Figure("late_packets", statistics.median(one.late_packets for one in runs), "packets"),
    ]


def table(runs: Sequence[Bulk]) -> str:
    """Markdown: one line per run."""
    lines = ["# A bulk flow through the tunnel", "", "| goodput Mb/s | tunnel Mb/s | B* Mb/s |", "| --- | --- | --- |"]
    lines += [
        f"| {one.goodput_bps / 1e6:.2f} | {one.tunnel_bps / 1e6:.2f} | {one.target_bps / 1e6:.2f} |" for one in runs
    ]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """The experiment; a run that was disturbed is told in the details, the control loop bears it."""
    repeat = settings.repeat or 1
    runs = []
    for number in range(repeat):
        report(f"run {number + 1} of {repeat}", number / repeat)
        runs.append(run_once(settings, settings.seed * 1000 + number))
    return Outcome(figures(runs), table(runs), [asdict(one) for one in runs])


EXPERIMENT = Experiment("tunnel-bulk", "Elastic tunnel: one CUBIC flow through it, against the tunnel's target.", run)
