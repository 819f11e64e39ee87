"""`proxy`: what a host without an agent gets through explicit-rate proxies, beside a flow of an agent's own host
(Brassil et al., The CHART System, sections 3 and 5).

A row of four nodes: client - near - far - server, the link in the middle long and lossy. Through proxies on near and
far the client, whose stack knows nothing of CHART, sends to the server; in turns with it near itself, where the agent
is, sends to far. Both get the same rate on the same link. Beside them the client without any proxy.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import IO

from chart.common.processes import end_process
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
from chart_lab.programs import program
from chart_lab.topology import Link, Node, Topology

PROXY = "dataplane/chart-proxy"
CLIENT, NEAR, FAR, SERVER = "client", "near", "far", "server"
# Through which interfaces each proxy takes connections.
TAKEN = {NEAR: (f"to-{CLIENT}", f"to-{FAR}"), FAR: (f"to-{NEAR}", f"to-{SERVER}")}
LONG_LINK = f"{NEAR}-{FAR}"
RATE_MBIT = 100.0
LOSS = 0.02
DELAY_MS = 20.0
# The hosts' own links: faster than the long one, and idle enough for packets to pass in groups.
HOST_MBIT = 500.0
HOST_DELAY_MS = 1.0
HOST_COALESCE_US = 200
DURATION_S = 15.0
REPEAT = 2
START_TIMEOUT_S = 15.0
ATTEMPTS = 3
KINDS = ("proxied", "agent", "alone")
LABELS = {
    "proxied": "host behind the proxies",
    "agent": "host with an agent",
    "alone": "host without either (cubic)",
}


@dataclass(frozen=True)
class Run:
    """One transfer: goodput from its first SYN on."""

    kind: str
    goodput_bps: float
    # Why it cannot be judged; None when it can.
    complaint: str | None = None


def line(*, rate_mbit: float, loss: float, delay_ms: float) -> Topology:
    """A host at each end, and between them the two nodes of the long link."""
    host = {"rate_mbit": HOST_MBIT, "delay_ms": HOST_DELAY_MS, "coalesce_us": HOST_COALESCE_US}
    return Topology(
        name="proxied",
        nodes=[Node(name=name) for name in (CLIENT, NEAR, FAR, SERVER)],
        links=[
            Link.model_validate({"ends": (CLIENT, NEAR), **host}),
            Link(ends=(NEAR, FAR), rate_mbit=rate_mbit, loss=loss, delay_ms=delay_ms),
            Link.model_validate({"ends": (FAR, SERVER), **host}),
        ],
    )


@contextmanager
def proxies(lab: Lab) -> Iterator[None]:
    """Runs chart-proxy on both ends of the long link, ready when the block begins. Raises LabError."""
    running: list[tuple[subprocess.Popen[str], IO[str]]] = []
    try:
        for node, interfaces in TAKEN.items():
            words = [word for name in interfaces for word in ("--interface", name)]
            log = lab.node_directory(node) / "proxy.log"
            output: IO[str] = log.open("w")
            command = [str(program(PROXY)), *words, "--no-ipv6", "--drain-s", "0"]
            process = lab.popen(node, command, stdout=output, stderr=output)
            running.append((process, output))
            deadline = time.monotonic() + START_TIMEOUT_S
            while "ready" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise LabError(f"chart-proxy of {node} does not start: {log.read_text().strip()[-500:]}")
                time.sleep(0.02)
        yield
    finally:
        for process, output in running:
            end_process(process)
            output.close()


def run_once(kind: str, cell: Topology, seed: int, duration_s: float) -> Run:
    """One transfer in a lab of its own. Raises LabError when it fails."""
    source, sink = (NEAR, FAR) if kind == "agent" else (CLIENT, SERVER)
    rate_bps = (cell.links[1].rate_mbit or 0) * 1e6 * agents.RATE_SHARE
    with temporary_lab(cell, seed) as lab, ExitStack() as stack:
        if kind != "alone":
            stated = agents.grant("flow", lab.address(source), lab.address(sink), rate_bps, duration_s + 60)
            stack.enter_context(agents.agents(lab, {NEAR: [stated]}))
        if kind == "proxied":
            stack.enter_context(proxies(lab))
        before = noise.cpu_times(lab)
        lab.reset_ground_truth(LONG_LINK)
        own = "cubic" if kind != "agent" else None
        account = traffic.Transfer(lab, source, sink, duration_s=duration_s, congestion=own).finish()
        disturbed = noise.judge(before, noise.cpu_times(lab), lab.ground_truth(LONG_LINK))
    if kind == "agent" and account.congestion != agents.FLOW_CONTROL:
        raise LabError(f"the flow ended under {account.congestion}: chart-agent did not hold it at its rate")
    return Run(kind, account.goodput_bps(duration_s), disturbed.complaint())


def run_quietly(kind: str, cell: Topology, seed: int, duration_s: float, *, judge_noise: bool) -> Run:
    """The same, tried again when the machine was noisy. Raises NoisyMachineError when it always is."""
    return noise.undisturbed(
        lambda: run_once(kind, cell, seed, duration_s),
        lambda run: run.complaint,
        LABELS[kind],
        attempts=ATTEMPTS,
        judge_noise=judge_noise,
    )


def evaluate(runs: Sequence[Run]) -> Iterator[Figure]:
    """The share, then the median of each kind."""
    found = {
        kind: statistics.median(run.goodput_bps for run in runs if run.kind == kind)
        for kind in KINDS
        if any(run.kind == kind for run in runs)
    }
    alone = found.get("alone")
    peer = alone / found["agent"] if alone else None
    yield Figure("goodput_share_of_agent", found["proxied"] / found["agent"], "ratio", ">= 0.95", peer)
    for kind, goodput_bps in found.items():
        yield Figure(f"goodput_bps{dimensions(host=kind)}", goodput_bps, "bit/s")


def table(runs: Sequence[Run], cell: Topology) -> str:
    """Markdown: one line per run."""
    link = cell.links[1]
    lines = [
        f"# Hosts without an agent: {link.rate_mbit:g} Mb/s, loss {link.loss:g}, {link.delay_ms:g} ms one way",
        "",
        "| sender | goodput, Mb/s |",
        "| --- | --- |",
    ]
    lines += [
        f"| {LABELS[run.kind]} | {run.goodput_bps / 1e6:.1f} |"
        for run in sorted(runs, key=lambda run: KINDS.index(run.kind))
    ]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """Every kind, in turns."""
    cell = line(
        rate_mbit=(settings.rate_mbit or (RATE_MBIT,))[0],
        loss=(settings.loss or (LOSS,))[0],
        delay_ms=(settings.delay_ms or (DELAY_MS,))[0],
    )
    duration_s = settings.duration_s or DURATION_S
    todo = list(interleaved(KINDS, settings.repeat or REPEAT))
    runs = []
    for number, (_, kind) in enumerate(todo):
        report(LABELS[kind], number / len(todo))
        runs.append(run_quietly(kind, cell, settings.seed, duration_s, judge_noise=settings.judge_noise))
    return Outcome(list(evaluate(runs)), table(runs, cell), [asdict(one) for one in runs])


EXPERIMENT = Experiment(
    "proxy", "A host behind explicit-rate proxies beside a host with an agent: its share of the goodput.", run
)
