"""`scone`: advice in SCONE packets against the rates that flows have, on the platform as it is installed.

Four nodes in a line. QUIC-like flows go from the first node to the last; the two nodes between them give advice on the
links that they forward by, the second of which is narrower. Some flows are granted a rate, are granted another one, and
lose it; the others have the fair share of the narrower link all the time. Then the links police: of two QUIC
connections (aioquic) with a grant each one follows its advice, the other sends four times as much.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from chart_lab import scone_endpoint, topology
from chart_lab.errors import LabError
from chart_lab.experiments import installed
from chart_lab.experiments.framework import Experiment, Outcome, Report, Settings
from chart_lab.experiments.installed import Installation
from chart_lab.experiments.scone_judge import Look, Told, evaluate, evaluate_policed
from chart_lab.network import Lab
from chart_lab.platform.laboratory import client, fetch, request_rate
from chart_lab.scone_endpoint import Arrival
from chart_lab.topology import Topology

SENDER, RECEIVER = "alpha", "delta"
ADVISING = ("bravo:to-charlie", "charlie:to-delta")
WIDE_MBIT, NARROW_MBIT = 100.0, 50.0
DELAY_MS = 2.0
GRANTED = tuple(range(7001, 7009))
FAIR = tuple(range(7101, 7105))
RATES_BPS = tuple(500_000 * (place + 1) for place in range(len(GRANTED)))
# Seconds between changes, between SCONE packets of a flow, and between two looks at the rates. A node changes eight
# datagrams of a flow in 67 s besides those after a change of advice, so a flow sends no more.
STAGE_S = 8.0
INTERVAL_S = 3.0
LOOK_S = 0.05
# Ports of who follows and who does not; four times the advice is used up after a third of its period of 67 s.
FOLLOWS, IGNORES = 7201, 7202
FACTOR = {FOLLOWS: 1, IGNORES: 4}
POLICED_BPS = 2_000_000
POLICED_S = 75.0
QUIC = [sys.executable, "-m", "chart_lab.quic_endpoint"]
ENDPOINT = [sys.executable, "-m", "chart_lab.scone_endpoint"]


def narrowed(base: Topology) -> Topology:
    """The line with short links without loss, the last one narrower."""
    links = []
    for link in base.links:
        rate_mbit = NARROW_MBIT if RECEIVER in link.ends else WIDE_MBIT
        links.append(link.model_copy(update={"loss": 0.0, "delay_ms": DELAY_MS, "rate_mbit": rate_mbit}))
    return base.model_copy(update={"links": links})


@contextmanager
def endpoints(lab: Lab, path: Path) -> Iterator[None]:
    """Receiver and sender of all flows. Raises LabError when one does not begin."""
    ports = ",".join(map(str, GRANTED + FAIR))
    own, peer = lab.address(SENDER), lab.address(RECEIVER)
    with ExitStack() as stack:
        for node, words in (
            (RECEIVER, ["receive", peer, ports, str(path)]),
            (SENDER, ["send", own, peer, f"{INTERVAL_S:g}", ports]),
        ):
            installed.begin(stack, lab, node, [*ENDPOINT, *words])
        yield


def look(rest: httpx.Client) -> Look:
    """The rates of all flows: of a grant what the sending node's kernel has, else the least fair share of the links
    that give advice. A flow whose request is just changing has none.
    """
    began_s = time.time()
    shares = [fetch(rest, f"/v1/links/{link_id}")["rate"] for link_id in ADVISING]
    requests = fetch(rest, "/v1/rate-requests", lifecycle="ACTIVE")["items"]
    at_s = (began_s + time.time()) / 2
    rates: dict[int, float] = {}
    if all(shares):
        rates = dict.fromkeys(GRANTED + FAIR, float(min(share["available_bps"] for share in shares)))
    for one in requests:
        port = one["request"]["destination_port"]
        rates.pop(port, None)
        kernel = [node["kernel_rate_bps"] for node in one["confirmations"] if node["node"] == SENDER]
        if one["enforcement"] == "ENFORCED" and kernel and kernel[0]:
            rates[port] = float(kernel[0])
    return Look(at_s, rates)


@contextmanager
def looking(product: Installation) -> Iterator[list[Look]]:
    """Looks one after the other while the block runs, also while it asks for rates: shares move then. Raises what a
    look raised when the block is over.
    """
    looks: list[Look] = []
    ended = threading.Event()

    def watch() -> None:
        with client(product.settings) as rest:
            while not ended.wait(LOOK_S):
                looks.append(look(rest))

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield looks
        finally:
            ended.set()
        watching.result()


def body(lab: Lab, port: int, rate_bps: int) -> dict[str, Any]:
    """A request for one flow."""
    return {
        "source": lab.address(SENDER),
        "destination": lab.address(RECEIVER),
        "protocol": "udp",
        "destination_port": port,
        "service": "guaranteed",
        "guaranteed_bps": rate_bps,
    }


def stages(lab: Lab, rest: httpx.Client, stage_s: float, report: Report) -> None:
    """No grants, grants, other rates, no grants."""
    report("no flow has a grant", 0.1)
    time.sleep(stage_s)
    report("eight flows have a grant", 0.3)
    made = [request_rate(rest, body(lab, *one))[0]["id"] for one in zip(GRANTED, RATES_BPS, strict=True)]
    time.sleep(stage_s)
    report("their rates change", 0.55)
    for identity, rate_bps in zip(made, reversed(RATES_BPS), strict=True):
        rest.patch(f"/v1/rate-requests/{identity}", json={"guaranteed_bps": rate_bps}).raise_for_status()
    time.sleep(stage_s)
    report("they are released", 0.8)
    for identity in made:
        rest.post(f"/v1/rate-requests/{identity}/release").raise_for_status()
    time.sleep(stage_s)


def _told(receiver: subprocess.Popen[str], sender: subprocess.Popen[str]) -> Told:
    """What the ends of a connection say when it is over. Raises LabError."""
    assert sender.stdout is not None
    assert receiver.stdout is not None
    lines = sender.stdout.readline(), receiver.stdout.readline()
    if not all(lines):
        raise LabError("a QUIC endpoint ended before its connection")
    return Told(**json.loads(lines[0]), **json.loads(lines[1]))


def policed(lab: Lab, rest: httpx.Client) -> dict[int, Told]:
    """What the QUIC connections saw, by port. Raises LabError when one does not begin."""
    installed.change_links(rest, ADVISING, scone=True, scone_police=True)
    own, peer = lab.address(SENDER), lab.address(RECEIVER)
    made = [request_rate(rest, body(lab, port, POLICED_BPS))[0]["id"] for port in FACTOR]
    processes: dict[int, list[subprocess.Popen[str]]] = {port: [] for port in FACTOR}
    with ExitStack() as stack:
        for port, factor in FACTOR.items():
            for node, words in (
                (RECEIVER, ["receive", peer, str(port)]),
                (SENDER, ["send", own, peer, str(port), str(factor), f"{POLICED_S:g}"]),
            ):
                processes[port].append(installed.begin(stack, lab, node, [*QUIC, *words]))
        told = {port: _told(*ends) for port, ends in processes.items()}
    for identity in made:
        rest.post(f"/v1/rate-requests/{identity}/release").raise_for_status()
    return told


def measure(
    product: Installation, seed: int, stage_s: float, report: Report
) -> tuple[list[Look], list[Arrival], dict[int, Told], Any]:
    """Looks, arrivals, what connections on policing links saw, and what the advising nodes' agents counted."""
    with product.network(narrowed(topology.load("demo")), seed) as lab, client(product.settings) as rest:
        installed.change_links(rest, ADVISING, scone=True)
        path = lab.node_directory(RECEIVER) / "scone.jsonl"
        with endpoints(lab, path), looking(product) as looks:
            stages(lab, rest, stage_s, report)
        report("links police by their advice", 0.85)
        told = policed(lab, rest)
        agents = {link: installed.agent_status(lab, link.split(":")[0]).get("links") for link in ADVISING}
        return looks, scone_endpoint.read(path), told, agents


def table(arrivals: Sequence[Arrival]) -> str:
    """Markdown: the signals that each flow was given, in order."""
    lines = ["# Advice by flow", "", "| port | signals (127: untouched) |", "| --- | --- |"]
    for port in GRANTED + FAIR:
        told = [str(one.signal) for one in arrivals if one.port == port and one.signal is not None]
        lines.append(f"| {port} | {', '.join(told)} |")
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """One network on the platform as it is installed. Raises LabError."""
    with installed.installation(report) as product:
        try:
            looks, arrivals, told, agents = measure(product, settings.seed, settings.duration_s or STAGE_S, report)
        except installed.FAILURES as error:
            raise LabError(str(error)) from error
    if not any(one.signal not in (None, scone_endpoint.UNKNOWN) for one in arrivals):
        raise LabError(f"no advice arrived in {len(arrivals)} datagrams; links of the agents: {agents}")
    details = {"looks": [asdict(one) for one in looks], "arrivals": [asdict(one) for one in arrivals], "agents": agents}
    details["policed"] = {str(port): asdict(one) for port, one in told.items()}
    figures = [*evaluate(arrivals, looks), *evaluate_policed(told[FOLLOWS], told[IGNORES])]
    return Outcome(figures, table(arrivals), details)


EXPERIMENT = Experiment(
    "scone",
    "Advice in SCONE packets of QUIC against the rates that flows have (on the platform as it is installed).",
    run,
    installed=True,
)
