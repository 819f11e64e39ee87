"""`rate-control`: the loop of one link under each controller while flows join and leave (The CHART System, section 4).

Three flows of a dumbbell with unequal times: one alone, a second, a third, then they leave one by one. Per controller:
how long after a join or leave the flows share the link equally and fully (convergence_s, the slowest), how full the
link is from a second after it (utilisation), what the queue costs in round-trip time outside the first RTT + 200 ms
after a join (p99_queue_ms), and what was dropped.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chart_lab.errors import LabError
from chart_lab.experiments import closed_loop, fair_share, noise
from chart_lab.experiments.closed_loop import Flow, LoopRun
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions, quantile
from chart_lab.experiments.traffic import PAYLOAD_SHARE
from chart_lab.topology import Topology, find_link

CONTROLLERS = ("nec", "rcp")
PHASES = 5
PHASE_S = 6.0
BOTTLENECK = "west:to-east"
PORT = 5001
WINDOW_S, STEP_S, HELD_S = 0.2, 0.05, 1.0
JAIN, FULL = 0.99, 0.95
# Of the link: what C_er leaves of it, as payload of full segments.
SHARED_PAYLOAD = 0.97 * PAYLOAD_SHARE
JOIN_ALLOWANCE_S = 0.2
ATTEMPTS = 2


@dataclass(frozen=True)
class Judgement:
    """One controller's run."""

    convergence_s: tuple[float, ...]
    utilisation: float
    p99_queue_ms: float
    p99_queue_always_ms: float
    drops: int


def schedule(phase_s: float) -> list[Flow]:
    """Who sends when: 1, 2, 3, 2, 1 flows, each number for one phase."""
    return [
        Flow("source1", "sink1", PORT, start_s=0.0, end_s=PHASES * phase_s),
        Flow("source2", "sink2", PORT, start_s=phase_s, end_s=4 * phase_s),
        Flow("source1", "sink1", PORT + 1, start_s=2 * phase_s, end_s=3 * phase_s),
    ]


def base_rtt_ms(base: Topology, flow: Flow) -> float:
    """Twice the delays of the path."""
    links = [find_link(base, link_id)[0] for link_id in closed_loop.path_links(base, flow.source, flow.sink)]
    return 2 * sum(link.delay_ms or 0.0 for link in links)


def changes(run: LoopRun) -> list[int]:
    """Times (CLOCK_MONOTONIC, ns) of every join and leave."""
    ends = [account.syn_ns + round((flow.end_s - flow.start_s) * 1e9) for flow, account in run.flows]
    return sorted([*(account.syn_ns for _, account in run.flows), *ends])


def active(run: LoopRun, start_ns: int, end_ns: int) -> list[float]:
    """Goodput of every flow that is there for all of a time."""
    found = []
    for flow, account in run.flows:
        leaves_ns = account.syn_ns + round((flow.end_s - flow.start_s) * 1e9)
        if account.syn_ns <= start_ns and end_ns <= leaves_ns:
            found.append(closed_loop.rate_bps(account, start_ns, end_ns))
    return found


def settled_after_s(run: LoopRun, from_ns: int, to_ns: int, link_bps: float) -> float | None:
    """Seconds from a change until the flows share the link equally and fully for HELD_S; None: never."""
    window, step = round(WINDOW_S * 1e9), round(STEP_S * 1e9)
    needed = round((HELD_S - WINDOW_S) / STEP_S) + 1
    held = 0
    for start in range(from_ns, to_ns - window, step):
        rates = active(run, start, start + window)
        good = bool(rates) and sum(rates) >= FULL * SHARED_PAYLOAD * link_bps and fair_share.jain(rates) >= JAIN
        held = held + 1 if good else 0
        if held == needed:
            return (start - (needed - 1) * step - from_ns) / 1e9
    return None


def judge(run: LoopRun, base: Topology) -> Judgement:
    """The figures of one run. Raises LabError when the loop never settled or the streams said nothing."""
    link_bps = (find_link(base, BOTTLENECK)[0].rate_mbit or 0.0) * 1e6
    # Changes closer together than that are one.
    spans = [(one, other) for one, other in itertools.pairwise(changes(run)) if other - one > HELD_S * 1e9]
    times = []
    for before, after in spans:
        found = settled_after_s(run, before, after, link_bps)
        times.append((after - before) / 1e9 if found is None else found)
    steady = [
        load
        for load in run.watch.loads
        for before, after in spans
        if before + 1_000_000_000 <= load.end_ns - load.interval_s * 1e9 and load.end_ns <= after
    ]
    if not steady:
        raise LabError(f"no load of {BOTTLENECK} was reported while the flows ran")
    carried = sum(load.sent_bytes for load in steady) * 8 / sum(load.interval_s for load in steady)
    joins = [account.syn_ns for _, account in run.flows]
    settled, always = [], []
    for flow, account in run.flows:
        base_ms = base_rtt_ms(base, flow)
        allowance = (base_ms / 1e3 + JOIN_ALLOWANCE_S) * 1e9
        for at, rtt in zip(account.rtt_at_ns, account.rtt_us, strict=True):
            if rtt <= 0:
                continue
            always.append(rtt / 1e3 - base_ms)
            if not any(join <= at <= join + allowance for join in joins):
                settled.append(rtt / 1e3 - base_ms)
    drops = sum(load.dropped_packets for load in run.watch.loads)
    return Judgement(tuple(times), carried / link_bps, quantile(settled, 0.99), quantile(always, 0.99), drops)


def figures(found: dict[str, Judgement], goal_s: float) -> list[Figure]:
    """One set per controller; those without a name of a controller are of `nec`."""
    result = []
    for name, one in found.items():
        peer = next((other for other_name, other in found.items() if other_name != name), None)
        ends = [dimensions(controller=name)] + ([""] if name == CONTROLLERS[0] else [])
        for end in ends:
            result += [
                Figure(
                    f"convergence_s{end}",
                    max(one.convergence_s),
                    "s",
                    f"<= {goal_s:g}",
                    max(peer.convergence_s) if peer else None,
                ),
                Figure(f"utilisation{end}", one.utilisation, "ratio", ">= 0.95", peer.utilisation if peer else None),
                Figure(f"p99_queue_ms{end}", one.p99_queue_ms, "ms", "<= 5", peer.p99_queue_ms if peer else None),
                Figure(f"drops{end}", one.drops, "packets", "<= 0", peer.drops if peer else None),
            ]
    return result


def table(found: dict[str, Judgement]) -> str:
    """Markdown: one line per controller."""
    lines = [
        "# Link rate control while flows join and leave",
        "",
        "| controller | convergence per change, s | utilisation | p99 queue, ms | p99 with joins, ms | drops |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in found.items():
        times = ", ".join(f"{value:.2f}" for value in one.convergence_s)
        lines.append(
            f"| {name} | {times} | {one.utilisation:.3f} | {one.p99_queue_ms:.2f} | {one.p99_queue_always_ms:.2f}"
            f" | {one.drops} |"
        )
    return "\n".join(lines) + "\n"


def series(run: LoopRun) -> dict[str, Any]:
    """What the plot shows, seconds after the start: goodput of each flow, R, queue."""
    step = 100_000_000
    last = max(changes(run))
    at = list(range(run.began_ns, last, step))
    return {
        "at_s": [(one - run.began_ns) / 1e9 for one in at],
        "goodput_bps": {
            f"{flow.source}:{flow.port}": [closed_loop.rate_bps(account, one, one + step) for one in at]
            for flow, account in run.flows
        },
        "rates": [((one - run.began_ns) / 1e9, rate) for one, rate, _ in run.watch.rates],
        "queue": [((load.end_ns - run.began_ns) / 1e9, load.queue_bytes) for load in run.watch.loads],
    }


def plot(drawn: dict[str, dict[str, Any]], path: Path) -> None:
    """PNG: goodput and R above, queue below, one column per controller."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(drawn), figsize=(5 * len(drawn), 5), sharex=True, squeeze=False)
    for column, (name, one) in enumerate(drawn.items()):
        for label, values in one["goodput_bps"].items():
            axes[0][column].plot(one["at_s"], [value / 1e6 for value in values], label=label)
        axes[0][column].step(*zip(*[(at, rate / 1e6) for at, rate in one["rates"]], strict=True), "k:", where="post")
        axes[0][column].set_title(name)
        axes[1][column].plot(*zip(*[(at, size / 1e3) for at, size in one["queue"]], strict=True))
        axes[1][column].set_xlabel("s")
    axes[0][0].set_ylabel("goodput, Mb/s; dotted: R")
    axes[1][0].set_ylabel("queue, kB")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(settings: Settings, report: Report) -> Outcome:
    """The same schedule under each controller."""
    base = fair_share.bottleneck_topology(settings)
    flows = schedule(settings.duration_s or PHASE_S)
    found: dict[str, Judgement] = {}
    drawn: dict[str, dict[str, Any]] = {}
    with closed_loop.control_plane() as plane:
        for place, controller in enumerate(CONTROLLERS):
            report(controller, place / len(CONTROLLERS))
            plane.state_policy(controller)
            result = noise.undisturbed(
                lambda: closed_loop.run_flows(plane, base, flows, BOTTLENECK, settings.seed),
                lambda one: one.complaint,
                controller,
                attempts=ATTEMPTS,
                judge_noise=settings.judge_noise,
            )
            found[controller] = judge(result, base)
            drawn[controller] = series(result)
    rtt_s = base_rtt_ms(base, flows[0]) / 1e3
    return Outcome(figures(found, max(3 * rtt_s, 0.5)), table(found), drawn, lambda path: plot(drawn, path))


EXPERIMENT = Experiment(
    "rate-control", "Flows that join and leave under each link controller: convergence, utilisation, queue, drops.", run
)
