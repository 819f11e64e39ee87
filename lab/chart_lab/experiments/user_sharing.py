"""`user-sharing`: the available rate is divided among users first, then among each user's flows.

Ann has four flows, from two nodes; bob has one. All five cross one bottleneck, each under a grant of its own, under the
whole control loop (The CHART System, section 4). Per user what all flows got, beside the same flows under CUBIC, which
knows flows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chart_lab.experiments import closed_loop, fair_share, noise
from chart_lab.experiments.closed_loop import Flow, LoopRun
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.experiments.traffic import PAYLOAD_SHARE
from chart_lab.topology import find_link

BOTTLENECK = "west:to-east"
PORT = 5001
DURATION_S = 12.0
# Shares count once joins are over.
WARM_UP_S = 3.0
ATTEMPTS = 2
CONTROLS = ("cubic", "chart")
GOAL = 0.03


@dataclass(frozen=True)
class Shares:
    """Payload bits per second of every flow, by user."""

    flows: dict[str, list[float]]

    def totals(self) -> dict[str, float]:
        """What each user got."""
        return {user: sum(rates) for user, rates in self.flows.items()}

    def deviation(self) -> float:
        """How far the user who is farthest from an equal part is from it, as a share of that part."""
        totals = self.totals()
        fair = sum(totals.values()) / len(totals)
        return max(abs(one / fair - 1) for one in totals.values())

    def jain_within(self) -> float:
        """Jain's index of the flows of one user, the least of all users."""
        return min(fair_share.jain(rates) for rates in self.flows.values())


def flows_of(control: str, duration_s: float) -> list[Flow]:
    """Four of ann's, two from each node, and one of bob's."""
    places = [("ann", "source1", "sink1"), ("ann", "source2", "sink2")] * 2 + [("bob", "source1", "sink1")]
    return [
        Flow(source, sink, PORT + number, control, end_s=duration_s, user=user)
        for number, (user, source, sink) in enumerate(places)
    ]


def judge(run: LoopRun) -> Shares:
    """What users got between the warm-up and the end of the flow that ends first."""
    start_ns = max(account.syn_ns for _, account in run.flows) + round(WARM_UP_S * 1e9)
    end_ns = min(account.syn_ns + round((flow.end_s - flow.start_s) * 1e9) for flow, account in run.flows)
    found: dict[str, list[float]] = {}
    for flow, account in run.flows:
        found.setdefault(flow.user, []).append(closed_loop.rate_bps(account, start_ns, end_ns))
    return Shares(found)


def figures(found: dict[str, Shares], link_bps: float) -> list[Figure]:
    """Those of CHART, with CUBIC's as peers."""
    chart, cubic = found["chart"], found["cubic"]
    total = sum(chart.totals().values()) / (link_bps * PAYLOAD_SHARE)
    return [
        Figure("user_share_deviation", chart.deviation(), "ratio", f"<= {GOAL}", cubic.deviation()),
        Figure("jain_within_user", chart.jain_within(), "ratio", ">= 0.99", cubic.jain_within()),
        Figure("total_share", total, "ratio", ">= 0.95", sum(cubic.totals().values()) / (link_bps * PAYLOAD_SHARE)),
        *(Figure(f"goodput_bps/user={user}", rate, "bit/s") for user, rate in chart.totals().items()),
    ]


def table(found: dict[str, Shares]) -> str:
    """Markdown: one line per control and user."""
    lines = [
        "# Users beside each other",
        "",
        "| control | user | flows, Mb/s | together |",
        "| --- | --- | --- | --- |",
    ]
    for control, shares in found.items():
        for user, rates in shares.flows.items():
            each = ", ".join(f"{rate / 1e6:.2f}" for rate in rates)
            lines.append(f"| {control} | {user} | {each} | {sum(rates) / 1e6:.2f} |")
    return "\n".join(lines) + "\n"


def plot(found: dict[str, Shares], path: Path) -> None:
    """PNG: a bar per control and user, a step per flow."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(5, 3.6))
    labels: list[str] = []
    for control, shares in found.items():
        for user, rates in shares.flows.items():
            below = 0.0
            for rate in rates:
                axis.bar(len(labels), rate / 1e6, bottom=below, edgecolor="white", color="tab:blue")
                below += rate / 1e6
            labels.append(f"{control}\n{user}, {len(rates)}")
    axis.set_xticks(range(len(labels)), labels)
    axis.set_ylabel("goodput, Mb/s")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(settings: Settings, report: Report) -> Outcome:
    """The same flows under each control."""
    base = fair_share.bottleneck_topology(settings)
    link_bps = (find_link(base, BOTTLENECK)[0].rate_mbit or 0.0) * 1e6
    duration_s = settings.duration_s or DURATION_S
    found: dict[str, Shares] = {}
    # Times in seconds; R and legacy share in bit/s, octets sent and queued in an interval, users counted.
    details: dict[str, Any] = {}
    with closed_loop.control_plane() as plane:
        plane.state_policy("nec")
        for place, control in enumerate(CONTROLS):
            report(control, place / len(CONTROLS))
            flows = flows_of(control, duration_s)
            result = noise.undisturbed(
                partial(closed_loop.run_flows, plane, base, flows, BOTTLENECK, settings.seed),
                lambda one: one.complaint,
                control,
                attempts=ATTEMPTS,
                judge_noise=settings.judge_noise,
            )
            found[control] = judge(result)
            rates = [((at - result.began_ns) / 1e9, rate, legacy) for at, rate, legacy in result.watch.rates]
            loads = [
                ((load.end_ns - result.began_ns) / 1e9, load.sent_bytes, load.queue_bytes, load.users)
                for load in result.watch.loads
            ]
            details[control] = {"flows_bps": found[control].flows, "rates": rates, "loads": loads}
    return Outcome(figures(found, link_bps), table(found), details, lambda path: plot(found, path))


EXPERIMENT = Experiment(
    "user-sharing", "A user with four flows beside a user with one on a bottleneck: users get equal parts.", run
)
