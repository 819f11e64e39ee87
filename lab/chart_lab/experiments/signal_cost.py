"""`signal-cost`: what in-band signalling costs a packet, and a bulk transfer over veth with the programs attached.

The first two figures come from the kernel's test run (dataplane/bpf/tests/signal_cost.c): a packet of data of a flow
with a rate, and a signal that an element on the way verifies and signs anew. Beside them stand the least median of
several stretches and the same two tags in a C program: a machine may change its speed meanwhile.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, interleaved, temporary_lab
from chart_lab.experiments.signal_lab import Signals, ask, elements
from chart_lab.experiments.traffic import await_listening
from chart_lab.network import Lab
from chart_lab.programs import program
from chart_lab.topology import Topology

REPEAT = 6
DURATION_S = 4.0
PORT = 5301
# A flow that nobody starts: with it every flow of the node is looked up, as where rates are asked for.
ASKED_PORT = 5399
CHOICES = ("without", "with")
ADDRESSES = {"alpha": "10.3.0.1", "bravo": "10.3.0.2"}
START_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Run:
    """One transfer: with the programs attached or without, bits per second at the receiver."""

    choice: str
    goodput_bps: float


def test_run() -> dict[str, float]:
    """Nanoseconds of one run of the programs. Raises LabError when they cannot be run."""
    result = subprocess.run([str(program("dataplane/signal-cost"))], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"signal-cost ended with {result.returncode}: {result.stderr.strip()[-300:]}")
    told: dict[str, float] = json.loads(result.stdout)
    return told


def join_by_veth(lab: Lab) -> None:
    """A veth pair between the two nodes, addressed."""
    alpha, bravo = lab.namespace("alpha"), lab.namespace("bravo")
    subprocess.run(
        ["ip", "link", "add", "v0", "netns", alpha, "type", "veth", "peer", "name", "v0", "netns", bravo], check=True
    )
    for node, address in ADDRESSES.items():
        lab.exec(node, ["ip", "address", "add", f"{address}/24", "dev", "v0"])
        lab.exec(node, ["ip", "link", "set", "v0", "up"])


def transfer(lab: Lab, duration_s: float) -> float:
    """One iperf3 transfer from alpha to bravo, bits per second at the receiver. Raises LabError when it fails."""
    server = lab.popen("bravo", ["iperf3", "-s", "-1", "-B", ADDRESSES["bravo"], "-p", str(PORT)])
    try:
        await_listening(lab, "bravo", PORT, server, START_TIMEOUT_S)
        command = ["iperf3", "-c", ADDRESSES["bravo"], "-p", str(PORT), "-t", f"{duration_s:g}", "-O", "1", "-J"]
        told: dict[str, Any] = json.loads(lab.exec("alpha", command).stdout)
        return float(told["end"]["sum_received"]["bits_per_second"])
    except (KeyError, json.JSONDecodeError) as error:
        raise LabError(f"iperf3 told no result: {error}") from error
    finally:
        server.kill()
        server.wait()


def iperf_ratio(runs: Sequence[Run]) -> float:
    """Median over the pairs of runs of what passes with the programs over what passes without."""
    with_programs = [run.goodput_bps for run in runs if run.choice == "with"]
    without = [run.goodput_bps for run in runs if run.choice == "without"]
    return statistics.median(a / b for a, b in zip(with_programs, without, strict=True))


def evaluate(cost_ns: dict[str, float], runs: Sequence[Run]) -> list[Figure]:
    """The figures of the experiment."""
    return [
        Figure("data_packet_ns", cost_ns["data_packet_ns"], "ns", "<= 150"),
        Figure("signal_packet_ns", cost_ns["signal_packet_ns"], "ns", "<= 3000"),
        Figure("iperf_ratio", iperf_ratio(runs), "ratio", ">= 0.97"),
        Figure("data_packet_least_ns", cost_ns["data_packet_least_ns"], "ns"),
        Figure("signal_packet_least_ns", cost_ns["signal_packet_least_ns"], "ns"),
        Figure("data_packet_without_rate_ns", cost_ns["data_packet_without_rate_ns"], "ns"),
        Figure("data_packet_in_ns", cost_ns["data_packet_in_ns"], "ns"),
        Figure("signal_origin_ns", cost_ns["signal_origin_ns"], "ns"),
        Figure("two_tags_in_c_ns", cost_ns["two_tags_in_c_ns"], "ns"),
        Figure("iperf_with_bps", statistics.median(r.goodput_bps for r in runs if r.choice == "with"), "bit/s"),
        Figure("iperf_without_bps", statistics.median(r.goodput_bps for r in runs if r.choice == "without"), "bit/s"),
    ]


def table(figures: Sequence[Figure]) -> str:
    """Markdown: one line per figure."""
    lines = ["# What in-band signalling costs", "", "| figure | value | unit | goal |", "| --- | --- | --- | --- |"]
    lines += [f"| {f.name} | {f.value:.4g} | {f.unit} | {f.goal or ''} |" for f in figures if f.value is not None]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """The test run, then pairs of transfers."""
    duration_s = settings.duration_s or DURATION_S
    repeat = settings.repeat or REPEAT
    report("test run", 0.0)
    cost_ns = test_run()
    topology = Topology.model_validate({"name": "veth", "nodes": [{"name": "alpha"}, {"name": "bravo"}]})
    signals = Signals(
        topology,
        asks={node: [ask(port=ASKED_PORT, available_bps=10**12)] for node in ADDRESSES},
        more_links={node: [f"{node}:v0=v0"] for node in ADDRESSES},
        shim=False,
    )
    runs: list[Run] = []
    with temporary_lab(topology, settings.seed) as lab:
        join_by_veth(lab)
        for _, choice in interleaved(CHOICES, repeat):
            report(f"iperf3 {choice} the programs", 0.1 + 0.9 * len(runs) / (2 * repeat))
            with ExitStack() as stack:
                if choice == "with":
                    stack.enter_context(elements(lab, signals))
                runs.append(Run(choice, transfer(lab, duration_s)))
    figures = evaluate(cost_ns, runs)
    details = {"test_run": cost_ns, "runs": [{"choice": r.choice, "goodput_bps": r.goodput_bps} for r in runs]}
    return Outcome(figures, table(figures), details)


EXPERIMENT = Experiment(
    "signal-cost", "What in-band signalling costs a packet, a signal, and a bulk transfer over veth.", run
)
