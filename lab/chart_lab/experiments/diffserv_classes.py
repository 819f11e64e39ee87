"""`diffserv-classes`: foreground, background and best-effort traffic on one link (A Differentiated Services
Implementation for High-Performance TCP Flows, section 6, figure 10).

On `garnet`: a premium channel of 45 Mb/s in a link of 100; UDP of 80 Mb/s in packets of 1,000 octets against it; three
short foreground flows with rates of their own; a bulk flow in the background that is given what they leave of the
channel, and is told each time that changes. What reservations would state when a foreground flow comes or goes
(docs/rate-requests.md, "background") stands here in the agents' rate files.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chart_lab import topology
from chart_lab.errors import LabError, LateError
from chart_lab.experiments import agents, diffserv, noise, traffic
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions, temporary_lab

CHANNEL_BPS = 45_000_000
UDP_BPS, UDP_BYTES = 80_000_000, 1000
BACKGROUND_PORT = 5001
DURATION_S = 20.0
ATTEMPTS = 3
# A flow is judged from a while after a change until a while before the next one, and ends ahead of its rate.
SETTLE_S = 0.5
END_S = 0.3
# Of a span, what has to be left to be judged.
JUDGED_PART = 0.25
BIN_S = 0.2


@dataclass(frozen=True)
class Foreground:
    """A flow with a rate of its own; times as shares of the whole."""

    port: int
    rate_bps: int
    start: float
    end: float


FOREGROUND = (
    Foreground(5002, 10_000_000, 0.15, 0.6),
    Foreground(5003, 20_000_000, 0.3, 0.75),
    Foreground(5004, 8_000_000, 0.45, 0.9),
)


@dataclass(frozen=True)
class Span:
    """Between two changes: from, to (seconds), and what each port may send."""

    start_s: float
    end_s: float
    rates: dict[int, int]


@dataclass(frozen=True)
class Run:
    """What became of everybody; share: goodput over what the rate leaves for payload, per span."""

    foreground: dict[int, tuple[float, ...]]
    background: tuple[float, ...]
    best_effort_bps: float
    series: dict[str, list[float]]
    # Why it cannot be judged; None when it can.
    complaint: str | None = None


def rates_at(share: float) -> dict[int, int]:
    """What the premium flows may send at a time: the foreground its rates, the background what is left."""
    own = {flow.port: flow.rate_bps for flow in FOREGROUND if flow.start <= share < flow.end}
    return {BACKGROUND_PORT: CHANNEL_BPS - sum(own.values()), **own}


def spans(duration_s: float) -> list[Span]:
    """The times between changes."""
    edges = sorted({0.0, 1.0, *(at for flow in FOREGROUND for at in (flow.start, flow.end))})
    return [Span(start * duration_s, end * duration_s, rates_at(start)) for start, end in itertools.pairwise(edges)]


def shares_of(port: int, account: traffic.Account, began_ns: int, found: Sequence[Span]) -> tuple[float, ...]:
    """A flow's goodput over its rate's payload, in every span in which it had a rate; from its own start on, which
    comes after the rates have been stated.

    Raises LateError when a span has too little left after that.
    """
    shares = []
    began_s = (account.syn_ns - began_ns) / 1e9
    for span in found:
        if port in span.rates:
            start_s, end_s = max(span.start_s, began_s) + SETTLE_S, span.end_s - SETTLE_S
            if end_s - start_s < JUDGED_PART * (span.end_s - span.start_s):
                raise LateError(f"the flow to port {port} began {began_s - span.start_s:.1f} s after its time")
            goodput_bps = account.goodput_bps(end_s - began_s, start_s - began_s)
            shares.append(goodput_bps / (span.rates[port] * traffic.PAYLOAD_SHARE))
    return tuple(shares)


def run_once(seed: int, duration_s: float) -> Run:
    """The whole schedule in a lab of its own. Raises LabError when a flow fails, LateError when the machine did."""
    found = spans(duration_s)
    running: dict[int, traffic.Transfer] = {}
    with temporary_lab(topology.load("garnet"), seed) as lab, diffserv.domain(lab, found[0].rates):
        before = noise.cpu_times(lab)
        lab.reset_ground_truth(diffserv.NARROW_LINK)
        with diffserv.best_effort(lab, UDP_BPS, packet_bytes=UDP_BYTES, seed=seed) as beside:
            received, began = beside.received_bytes(), time.monotonic()
            try:
                for span in found:
                    time.sleep(max(0.0, began + span.start_s - time.monotonic()))
                    diffserv.state(lab, span.rates)
                    for port in span.rates.keys() - running.keys():
                        last_s = max(one.end_s for one in found if port in one.rates)
                        left_s = began + last_s - END_S - time.monotonic()
                        if left_s <= 0:
                            raise LateError(f"stating rates took longer than the flow to port {port} was to last")
                        running[port] = traffic.Transfer(
                            lab, diffserv.PREMIUM, diffserv.SINK, duration_s=left_s, port=port
                        )
                accounts = {port: transfer.finish() for port, transfer in running.items()}
            finally:
                for transfer in running.values():
                    transfer.close()
            best_effort_bps = (beside.received_bytes() - received) * 8 / (time.monotonic() - began)
        disturbed = noise.judge(before, noise.cpu_times(lab), lab.ground_truth(diffserv.NARROW_LINK))
    for port, account in accounts.items():
        if account.congestion != agents.FLOW_CONTROL:
            raise LabError(f"port {port} ended under {account.congestion}: chart-agent did not hold it at its rate")
    began_ns = round(began * 1e9)
    return Run(
        {flow.port: shares_of(flow.port, accounts[flow.port], began_ns, found) for flow in FOREGROUND},
        shares_of(BACKGROUND_PORT, accounts[BACKGROUND_PORT], began_ns, found),
        best_effort_bps,
        {str(port): series(account, began_ns, duration_s) for port, account in accounts.items()},
        disturbed.complaint(),
    )


def series(account: traffic.Account, began_ns: int, duration_s: float) -> list[float]:
    """Goodput in bins of BIN_S, bit/s."""
    offset_s = (began_ns - account.syn_ns) / 1e9
    starts = [number * BIN_S + offset_s for number in range(int(duration_s / BIN_S))]
    return [max(0.0, account.goodput_bps(start + BIN_S, start)) for start in starts]


def evaluate(run: Run) -> Iterator[Figure]:
    """The worst foreground flow and span, what the background used of what was left to it, and best effort."""
    foreground = min(share for shares in run.foreground.values() for share in shares)
    yield Figure("foreground_share", foreground, "ratio", ">= 0.98")
    yield Figure("background_use", min(run.background), "ratio", ">= 0.95")
    # What the premium channel leaves of the link, 0.99 of which is shaped.
    left_bps = 0.99 * diffserv.NARROW_BPS - CHANNEL_BPS
    yield Figure("best_effort_bps", run.best_effort_bps, "bit/s", f">= {0.95 * left_bps:.0f}")
    for port, shares in run.foreground.items():
        yield Figure(f"foreground_share{dimensions(port=port)}", min(shares), "ratio", ">= 0.98")


def table(run: Run, duration_s: float) -> str:
    """Markdown: one line per span."""
    lines = [
        "# Foreground, background and best effort on one link",
        "",
        f"Best effort: {run.best_effort_bps / 1e6:.1f} of {UDP_BPS / 1e6:g} Mb/s.",
        "",
        "| from, s | to, s | background may, Mb/s | of it used | foreground, Mb/s |",
        "| --- | --- | --- | --- | --- |",
    ]
    for span, used in zip(spans(duration_s), run.background, strict=True):
        own = ", ".join(f"{rate / 1e6:g}" for port, rate in span.rates.items() if port != BACKGROUND_PORT)
        may = span.rates[BACKGROUND_PORT] / 1e6
        lines.append(f"| {span.start_s:g} | {span.end_s:g} | {may:g} | {used:.3f} | {own} |")
    lines += ["", "| foreground flow, Mb/s | share of its rate, per span |", "| --- | --- |"]
    for flow in FOREGROUND:
        told = ", ".join(f"{share:.3f}" for share in run.foreground[flow.port])
        lines.append(f"| {flow.rate_bps / 1e6:g} | {told} |")
    return "\n".join(lines) + "\n"


def plot(run: Run, path: Path) -> None:
    """PNG: goodput of every premium flow over time, as figure 10."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4))
    for port, values in run.series.items():
        label = "background" if port == str(BACKGROUND_PORT) else f"foreground {port}"
        axis.plot([number * BIN_S for number in range(len(values))], [value / 1e6 for value in values], label=label)
    axis.set_xlabel("s")
    axis.set_ylabel("goodput, Mb/s")
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(settings: Settings, report: Report) -> Outcome:
    """The schedule once."""
    duration_s = settings.duration_s or DURATION_S
    report("five flows", 0.0)
    found = noise.undisturbed(
        partial(run_once, settings.seed, duration_s),
        lambda one: one.complaint,
        "five flows",
        attempts=ATTEMPTS,
        judge_noise=settings.judge_noise,
    )
    details: dict[str, Any] = asdict(found)
    return Outcome(list(evaluate(found)), table(found, duration_s), details, lambda path: plot(found, path))


EXPERIMENT = Experiment(
    "diffserv-classes",
    "Foreground, background and best-effort flows on one link (A Differentiated Services Implementation, figure 10).",
    run,
)
