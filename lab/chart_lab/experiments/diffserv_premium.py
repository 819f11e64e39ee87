"""`diffserv-premium`: a premium TCP flow while best-effort traffic congests its link (A Differentiated Services
Implementation for High-Performance TCP Flows, section 4.4, figures 5 to 9).

On `garnet`, base round-trip time 3 ms, a premium flow has a share x of the narrow link; UDP of 1.5 times the link's
capacity comes beside it, or nothing. Told are how much the premium flow's round-trip time rises and its goodput moves
between the two, at several x; for a peer the same flow without any reservation, as in figure 5.

With `--installed` every run is a network of the platform as it is installed, and the reservation is a request over
REST; no edge polices there.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import agents, diffserv, installed, noise, traffic
from chart_lab.experiments.framework import (
    Experiment,
    Figure,
    Outcome,
    Report,
    Settings,
    dimensions,
    interleaved,
    quantile,
    temporary_lab,
)
from chart_lab.experiments.installed import Installation

SHARES = (0.15, 0.3, 0.45)
CONGESTION = 1.5
DURATION_S = 6.0
# From when the flow is judged: it and the best-effort traffic have filled what they fill.
BEGIN_S = 1.0
# A processor that is away for two milliseconds stands in one run's p99; medians of five runs tell of the network.
REPEAT = 5
ATTEMPTS = 3
PEER = "bbr"
KINDS = ("quiet", "congested")


@dataclass(frozen=True)
class Run:
    """One transfer; share 0: without a reservation."""

    share: float
    congested: bool
    goodput_bps: float
    rtt_p50_ms: float
    rtt_p99_ms: float
    best_effort_bps: float
    # Why it cannot be judged; None when it can.
    complaint: str | None = None


def round_trips_ms(account: traffic.Account, from_s: float) -> list[float]:
    """What the sender's kernel said of its round-trip time from so long after the SYN on."""
    from_ns = account.syn_ns + from_s * 1e9
    pairs = zip(account.rtt_at_ns, account.rtt_us, strict=True)
    return [rtt / 1e3 for at, rtt in pairs if at >= from_ns and rtt > 0]


def run_once(share: float, congested: bool, seed: int, duration_s: float, product: Installation | None = None) -> Run:
    """One transfer in a lab of its own, or on a network of a product. Raises LabError when it fails."""
    rates = {traffic.PORT: round(share * diffserv.NARROW_BPS)}
    base = topology.load("garnet")
    used_s = product.cpu_s if product else float
    with product.network(base, seed) if product else temporary_lab(base, seed) as lab, ExitStack() as stack:
        if share and product:
            stack.enter_context(product.rates(diffserv.requests_of(rates)))
        elif share:
            stack.enter_context(diffserv.domain(lab, rates))
        before = noise.cpu_times(lab, used_s())
        lab.reset_ground_truth(diffserv.NARROW_LINK)
        transfer = traffic.Transfer(
            lab, diffserv.PREMIUM, diffserv.SINK, duration_s=duration_s, congestion=None if share else PEER
        )
        beside = None
        if congested:
            beside = stack.enter_context(diffserv.best_effort(lab, CONGESTION * diffserv.NARROW_BPS, seed=seed))
        account = transfer.finish()
        received = beside.received_bytes() if beside is not None else 0
        after = noise.cpu_times(lab, used_s())
        disturbed = noise.judge(before, after, lab.ground_truth(diffserv.NARROW_LINK))
    if share and account.congestion != agents.FLOW_CONTROL:
        raise LabError(f"the flow ended under {account.congestion}: chart-agent did not hold it at its rate")
    rtt_ms = round_trips_ms(account, BEGIN_S)
    if not rtt_ms:
        raise LabError("the kernel said nothing of the flow's round-trip time")
    goodput_bps = account.goodput_bps(duration_s, BEGIN_S)
    middle, most = statistics.median(rtt_ms), quantile(rtt_ms, 0.99)
    return Run(share, congested, goodput_bps, middle, most, received * 8 / duration_s, disturbed.complaint())


def run_quietly(
    share: float,
    congested: bool,
    seed: int,
    duration_s: float,
    *,
    judge_noise: bool,
    product: Installation | None = None,
) -> Run:
    """The same, tried again when the machine was noisy. Raises NoisyMachineError when it always is."""
    return noise.undisturbed(
        partial(run_once, share, congested, seed, duration_s, product),
        lambda run: run.complaint,
        f"a premium share of {share:g}, {KINDS[congested]}",
        attempts=ATTEMPTS,
        judge_noise=judge_noise,
    )


@dataclass(frozen=True)
class Change:
    """What congestion does to the flow of one share."""

    rtt_rise_ms: float
    goodput_change: float


def change(runs: Sequence[Run], share: float) -> Change:
    """Congested beside quiet: p99 of the round-trip time, medians over the runs; goodput as a share, never negative."""

    def middle(congested: bool, of: str) -> float:
        return statistics.median(
            float(getattr(run, of)) for run in runs if (run.share, run.congested) == (share, congested)
        )

    rise_ms = middle(True, "rtt_p99_ms") - middle(False, "rtt_p99_ms")
    return Change(rise_ms, abs(middle(True, "goodput_bps") / middle(False, "goodput_bps") - 1))


def evaluate(runs: Sequence[Run]) -> Iterator[Figure]:
    """The worst share, then each; the peer is the flow without a reservation."""
    shares = sorted({run.share for run in runs if run.share})
    found = {share: change(runs, share) for share in shares}
    peer = change(runs, 0.0) if {run.congested for run in runs if not run.share} == {True, False} else None
    for name, unit, goal in (("rtt_rise_ms", "ms", "<= 1"), ("goodput_change", "ratio", "<= 0.01")):
        beside = getattr(peer, name) if peer else None
        yield Figure(f"premium_{name}", max(getattr(one, name) for one in found.values()), unit, goal, beside)
        for share, one in found.items():
            yield Figure(f"premium_{name}{dimensions(share=share)}", getattr(one, name), unit, goal, beside)
    for share in shares:
        own = [run for run in runs if run.share == share]
        reserved_bps = share * diffserv.NARROW_BPS * traffic.PAYLOAD_SHARE
        least = min(run.goodput_bps for run in own) / reserved_bps
        yield Figure(f"premium_goodput_share{dimensions(share=share)}", least, "ratio", ">= 0.98")
        best_effort = statistics.median(run.best_effort_bps for run in own if run.congested)
        yield Figure(f"best_effort_bps{dimensions(share=share)}", best_effort, "bit/s")


def table(runs: Sequence[Run]) -> str:
    """Markdown: one line per run."""
    lines = [
        "# A premium flow while its link is congested",
        "",
        "| premium share | best effort beside it | goodput, Mb/s | RTT, median ms | RTT, p99 ms | best effort, Mb/s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for run in sorted(runs, key=lambda run: (run.share, run.congested)):
        name = f"{run.share:g}" if run.share else f"none ({PEER})"
        beside = f"{CONGESTION:g} times the link" if run.congested else "nothing"
        lines.append(
            f"| {name} | {beside} | {run.goodput_bps / 1e6:.2f} | {run.rtt_p50_ms:.2f} | {run.rtt_p99_ms:.2f}"
            f" | {run.best_effort_bps / 1e6:.1f} |"
        )
    return "\n".join(lines) + "\n"


def plot(runs: Sequence[Run], path: Path) -> None:
    """PNG: round-trip time and goodput over the premium share, quiet and congested."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4))
    for congested, colour in ((False, "tab:blue"), (True, "tab:orange")):
        own = sorted((run for run in runs if run.share and run.congested == congested), key=lambda run: run.share)
        at = [run.share for run in own]
        axes[0].plot(at, [run.rtt_p99_ms for run in own], "o", color=colour, label=KINDS[congested])
        axes[1].plot(at, [run.goodput_bps / 1e6 for run in own], "o", color=colour)
    axes[0].set_ylabel("round-trip time, p99, ms")
    axes[0].set_ylim(bottom=0)
    axes[0].legend()
    axes[1].set_ylabel("goodput, Mb/s")
    for axis in axes:
        axis.set_xlabel("premium share of the link")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(settings: Settings, report: Report) -> Outcome:
    """Every share quiet and congested in turns, and the flow without a reservation."""
    duration_s = max(settings.duration_s or DURATION_S, 2 * BEGIN_S)
    shares = (*SHARES, 0.0)
    repeat = settings.repeat or REPEAT
    todo = [(number, share, kind) for share in shares for number, kind in interleaved(KINDS, repeat if share else 1)]
    runs = []
    with installed.installation(report) if settings.installed else nullcontext() as product:
        for done, (number, share, kind) in enumerate(todo):
            report(f"a premium share of {share:g}, {kind}" if share else f"no reservation, {kind}", done / len(todo))
            seed = settings.seed * 1000 + number
            measure = partial(run_quietly, share, kind == "congested", seed, duration_s, product=product)
            runs.append(measure(judge_noise=settings.judge_noise))
    details = [{**asdict(one), "installed": settings.installed} for one in runs]
    return Outcome(list(evaluate(runs)), table(runs), details, lambda path: plot(runs, path))


EXPERIMENT = Experiment(
    "diffserv-premium",
    "A premium flow while best-effort traffic congests its link: round-trip time and goodput (figures 5-9).",
    run,
    installed=True,
)
