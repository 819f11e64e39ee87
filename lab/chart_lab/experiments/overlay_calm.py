"""`overlay-calm`: whether loss, jitter and busy processors are taken for failures.

`two-path` through the overlay, every wide-area link losing 10 % each way with 20 ms of jitter, and nothing cut: every
overlay link that is called dead is a false failover. The second half runs with the processors half busy.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from chart.common.processes import end_process
from chart_lab import topology
from chart_lab.experiments import agents, overlay_nodes
from chart_lab.experiments.failover import OWNED
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, temporary_lab
from chart_lab.network import Lab
from chart_lab.topology import Topology

LOSS, JITTER_MS = 0.1, 20.0
DURATION_S = 3600.0
# The overlay has learnt what its links lose.
WARM_UP_S = 30.0
LOOK_S = 10.0
BUSY = """
import time
while True:
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    time.sleep(0.05)
"""
PROCESSORS = 2


@dataclass(frozen=True)
class Link:
    """One overlay link of a node at the end: failures since its warm-up, probes lost of those sent."""

    node: str
    name: str
    failures: int
    exchange_loss: float
    fails_after_ms: float


def lossy(base: Topology) -> Topology:
    """The topology whose wide-area links lose and delay unevenly."""
    links = [
        link.model_copy(update={"loss": LOSS, "jitter_ms": JITTER_MS} if link.delay_ms else {"loss": 0.0})
        for link in base.links
    ]
    return base.model_copy(update={"links": links})


def told(lab: Lab, node: str) -> list[dict[str, Any]]:
    """Overlay links as a node's agent reports them."""
    links: list[dict[str, Any]] = overlay_nodes.told(lab, node)["links"]
    return links


def failures(lab: Lab) -> dict[tuple[str, str], int]:
    """Failures so far, by node and link."""
    return {(node, link["name"]): int(link["failures"]) for node in OWNED for link in told(lab, node)}


@contextlib.contextmanager
def busy(on: bool) -> Iterator[None]:
    """Every processor works half of the time, where that is wanted."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(PROCESSORS if on else 0)]
    try:
        yield
    finally:
        for process in processes:
            end_process(process)


def run(settings: Settings, report: Report) -> Outcome:
    """An hour, or as long as asked for. Raises LabError."""
    duration_s = settings.duration_s or DURATION_S
    counted: dict[bool, int] = {}
    details: list[Link] = []
    with temporary_lab(lossy(topology.load("two-path")), settings.seed) as lab:
        files = overlay_nodes.write(lab, OWNED)
        with agents.running(lab, {node: ["--overlay-file", str(path)] for node, path in files.items()}):
            overlay_nodes.await_alive(lab, OWNED)
            time.sleep(WARM_UP_S)
            for half, on in enumerate((False, True)):
                before = failures(lab)
                end = time.monotonic() + duration_s / 2
                with busy(on):
                    while (left := end - time.monotonic()) > 0:
                        report("busy" if on else "quiet", (half + 1 - left / (duration_s / 2)) / 2)
                        time.sleep(min(LOOK_S, left))
                after = failures(lab)
                counted[on] = sum(after[key] - before[key] for key in after)
            for node in OWNED:
                details += [
                    Link(node, link["name"], link["failures"], link["exchange_loss"], link["fails_after_ms"])
                    for link in told(lab, node)
                ]
    figures = [
        Figure("false_failovers", sum(counted.values()), "failovers", "<= 1"),
        Figure("false_failovers_tried", len(details) * duration_s / 3600, "link hours"),
        Figure("false_failovers/busy=no", counted[False], "failovers"),
        Figure("false_failovers/busy=yes", counted[True], "failovers"),
    ]
    lines = ["# Overlay links that nobody cut", "", "| node | link | failures | loss of exchanges | fails after ms |"]
    lines.append("| --- " * 5 + "|")
    lines += [
        f"| {one.node} | {one.name} | {one.failures} | {one.exchange_loss:.3f} | {one.fails_after_ms:.0f} |"
        for one in details
    ]
    return Outcome(figures, "\n".join(lines) + "\n", [asdict(one) for one in details])


EXPERIMENT = Experiment(
    "overlay-calm", "Whether loss, jitter and busy processors are taken for failures of overlay links.", run
)
