"""`diffserv-policing`: what a token bucket at the edge of a domain makes of a TCP flow, over the depth of the bucket (A
Differentiated Services Implementation for High-Performance TCP Flows, section 5.1, figures 3 and 4).

One flow enters a domain whose edge drops what is above the flow's reservation. TCP has to find that rate by its losses
and oscillates; a flow that is told its rate sends no faster than the policer lets it. The policer is CHART's own
(`chart-agent --edge`), the same for all controls, and so is the reservation at the edge.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from chart_lab.errors import LabError
from chart_lab.experiments import agents, noise, traffic
from chart_lab.experiments.framework import (
    Experiment,
    Figure,
    Outcome,
    Report,
    Settings,
    dimensions,
    interleaved,
    temporary_lab,
)
from chart_lab.network import Lab
from chart_lab.topology import Link, Node, Topology

CONTROLS = ("cubic", "bbr", "chart")
LINK_MBIT = 100.0
RESERVED_BPS = 40_000_000
DELAY_MS = 10.0
# Octets, from a fifth of what figure 3 begins with (a round-trip time at the rate is 200 kB) to the greatest there.
DEPTHS_BYTES = (40_000, 200_000, 2_000_000)
DURATION_S = 12.0
WINDOW_S = 0.2
# The bucket is full at first and a slow start needs its time; neither is what is judged.
BEGIN_S = 3.0
# Payload of full segments in IP packets.
SOURCE, EDGE, SINK = "source", "edge", "sink"
ATTEMPTS = 3


@dataclass(frozen=True)
class Run:
    """One transfer: goodput in windows of WINDOW_S from BEGIN_S on, and packets that the policer dropped."""

    depth_bytes: int
    control: str
    windows_bps: tuple[float, ...]
    dropped_packets: int
    # Why it cannot be judged; None when it can.
    complaint: str | None = None

    @property
    def goodput_bps(self) -> float:
        """Mean over the windows."""
        return statistics.fmean(self.windows_bps)

    @property
    def goodput_share(self) -> float:
        """Of what the reservation leaves for payload."""
        return self.goodput_bps / (RESERVED_BPS * traffic.PAYLOAD_SHARE)

    @property
    def oscillation(self) -> float:
        """Standard deviation of the windows over the reservation's payload."""
        return statistics.pstdev(self.windows_bps) / (RESERVED_BPS * traffic.PAYLOAD_SHARE)


def domain(link_mbit: float, delay_ms: float) -> Topology:
    """A host, the edge of a domain, and a host inside it."""
    nodes = [Node(name=name) for name in (SOURCE, EDGE, SINK)]
    links = [
        Link(ends=(one, other), rate_mbit=link_mbit, delay_ms=delay_ms) for one, other in ((SOURCE, EDGE), (EDGE, SINK))
    ]
    return Topology(name="diffserv", nodes=nodes, links=links)


def depth_ms(depth_bytes: int) -> int:
    """A bucket's depth as time at the reserved rate."""
    return round(depth_bytes * 8e3 / RESERVED_BPS)


def windows(account: traffic.Account, begin_s: float, end_s: float) -> tuple[float, ...]:
    """Goodput of each whole window between two times after the SYN, bit/s."""
    count = int((end_s - begin_s) / WINDOW_S)
    starts = [begin_s + number * WINDOW_S for number in range(count)]
    return tuple(account.goodput_bps(start + WINDOW_S, start) for start in starts)


def _dropped(lab: Lab) -> int:
    told = lab.exec(EDGE, [*agents.command(lab, EDGE), "--status", "--json"]).stdout
    (edge,) = json.loads(told)["edges"]
    return int(edge["exceeding_packets"])


def run_once(depth_bytes: int, control: str, seed: int, duration_s: float) -> Run:
    """One transfer in a lab of its own. Raises LabError when it fails."""
    with temporary_lab(domain(LINK_MBIT, DELAY_MS), seed) as lab, ExitStack() as stack:
        reserved = agents.grant("premium", lab.address(SOURCE), lab.address(SINK), 0, duration_s + 60)
        reserved |= {"guaranteed_bps": RESERVED_BPS}
        police = ["--edge", f"to-{SOURCE}", "--edge-exceed", "drop", "--edge-depth-ms", str(depth_ms(depth_bytes))]
        # The edge holds every control to the reservation; the host knows of it under CHART only.
        stack.enter_context(agents.agents(lab, {EDGE: [reserved]}, {EDGE: police}))
        if control == "chart":
            stack.enter_context(agents.agents(lab, {SOURCE: [reserved]}))
        before = noise.cpu_times(lab)
        lab.reset_ground_truth(f"{SOURCE}-{EDGE}")
        transfer = traffic.Transfer(
            lab, SOURCE, SINK, duration_s=duration_s, congestion=None if control == "chart" else control
        )
        account = transfer.finish()
        disturbed = noise.judge(before, noise.cpu_times(lab), lab.ground_truth(f"{SOURCE}-{EDGE}"))
        dropped = _dropped(lab)
    if control == "chart" and account.congestion != agents.FLOW_CONTROL:
        raise LabError(f"the flow ended under {account.congestion}: chart-agent did not hold it at its rate")
    return Run(depth_bytes, control, windows(account, BEGIN_S, duration_s), dropped, disturbed.complaint())


def run_quietly(depth_bytes: int, control: str, seed: int, duration_s: float, *, judge_noise: bool) -> Run:
    """The same, tried again when the machine was noisy. Raises NoisyMachineError when it always is."""
    return noise.undisturbed(
        lambda: run_once(depth_bytes, control, seed, duration_s),
        lambda run: run.complaint,
        f"a bucket of {depth_bytes} octets with {control}",
        attempts=ATTEMPTS,
        judge_noise=judge_noise,
    )


def evaluate(runs: Sequence[Run]) -> Iterator[Figure]:
    """CHART's worst over the depths beside CUBIC's at the same depth, then every cell."""
    found = {
        (depth, control): (
            statistics.median(run.goodput_share for run in runs if (run.depth_bytes, run.control) == (depth, control)),
            statistics.median(run.oscillation for run in runs if (run.depth_bytes, run.control) == (depth, control)),
        )
        for depth, control in dict.fromkeys((run.depth_bytes, run.control) for run in runs)
    }
    own = [depth for depth, control in found if control == "chart"]
    if own:
        worst = max(own, key=lambda depth: found[depth, "chart"][1])
        peer = found.get((worst, "cubic"))
        yield Figure("oscillation", found[worst, "chart"][1], "ratio", "<= 0.05", peer[1] if peer else None)
        worst = min(own, key=lambda depth: found[depth, "chart"][0])
        peer = found.get((worst, "cubic"))
        yield Figure("goodput_share", found[worst, "chart"][0], "ratio", ">= 0.95", peer[0] if peer else None)
    for (depth, control), (share, oscillation) in found.items():
        end = dimensions(cc=control, depth_bytes=depth)
        yield Figure(f"goodput_share{end}", share, "ratio")
        yield Figure(f"oscillation{end}", oscillation, "ratio")


def table(runs: Sequence[Run]) -> str:
    """Markdown: one line per run."""
    lines = [
        f"# One flow behind a policer of {RESERVED_BPS / 1e6:g} Mb/s",
        "",
        "| bucket, kB | control | goodput, Mb/s | share | oscillation | dropped |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {run.depth_bytes / 1e3:g} | {run.control} | {run.goodput_bps / 1e6:.1f} | {run.goodput_share:.3f}"
        f" | {run.oscillation:.3f} | {run.dropped_packets} |"
        for run in sorted(runs, key=lambda run: (run.depth_bytes, CONTROLS.index(run.control)))
    ]
    return "\n".join(lines) + "\n"


def plot(runs: Sequence[Run], path: Path) -> None:
    """PNG: goodput over time, one panel per depth."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    depths = sorted({run.depth_bytes for run in runs})
    figure, axes = pyplot.subplots(1, len(depths), figsize=(4.5 * len(depths), 3), sharey=True, squeeze=False)
    for axis, depth in zip(axes[0], depths, strict=True):
        for run in runs:
            if run.depth_bytes == depth:
                at = [BEGIN_S + number * WINDOW_S for number in range(len(run.windows_bps))]
                axis.plot(at, [rate / 1e6 for rate in run.windows_bps], label=run.control)
        axis.axhline(RESERVED_BPS * traffic.PAYLOAD_SHARE / 1e6, linestyle=":", color="black")
        axis.set_title(f"bucket of {depth / 1e3:g} kB")
        axis.set_xlabel("s")
    axes[0][0].set_ylabel("goodput, Mb/s")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(settings: Settings, report: Report) -> Outcome:
    """Every depth under every control."""
    controls = settings.congestion or CONTROLS
    duration_s = max(settings.duration_s or DURATION_S, BEGIN_S + 2 * WINDOW_S)
    todo = [(depth, control) for depth in DEPTHS_BYTES for _, control in interleaved(controls, settings.repeat or 1)]
    runs = []
    for number, (depth, control) in enumerate(todo):
        report(f"a bucket of {depth / 1e3:g} kB, {control}", number / len(todo))
        runs.append(run_quietly(depth, control, settings.seed, duration_s, judge_noise=settings.judge_noise))
    return Outcome(list(evaluate(runs)), table(runs), [asdict(one) for one in runs], lambda path: plot(runs, path))


EXPERIMENT = Experiment(
    "diffserv-policing",
    "One flow behind a policer, over the depth of its token bucket: oscillation and share of the reservation.",
    run,
)
