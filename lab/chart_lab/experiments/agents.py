"""CHART in an experiment: an agent per node with a rate from a file, and no broker.

The rate of a flow is what its links' controllers would grant; here the experiment states it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from chart.common.processes import end_process
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.programs import program
from chart_lab.topology import all_ends

# Share of a link's capacity that one explicit-rate flow is given: all of it. What bursts and retransmission
# timers send too early stands in the bottleneck until trinity, which sees it in the RTT, has paced it away.
RATE_SHARE = 1.0
START_TIMEOUT_S = 15.0
FLOW_CONTROL = "trinity"


def grant(request_id: str, source: str, destination: str, rate_bps: float, valid_s: float) -> dict[str, Any]:
    """A grant of a rate file for all TCP flows from one address to another; rate with IP headers."""
    return {
        "request_id": request_id,
        "selector": {
            "source_prefix": f"{source}/32",
            "destination_prefix": f"{destination}/32",
            "protocol": "tcp",
            "source_port": 0,
            "destination_port": 0,
        },
        "guaranteed_bps": 0,
        "available_bps": round(rate_bps),
        "valid_for_ms": round(valid_s * 1000),
    }


def command(lab: Lab, node: str) -> list[str]:
    """chart-agent of a node, to be asked by more words."""
    return [str(program("dataplane/chart-agent")), "--node", node, "--state-dir", str(lab.node_directory(node))]


def _await_agent(lab: Lab, node: str, process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        if process.poll() is not None:
            raise LabError(f"chart-agent of {node} ended: {log.read_text().strip()[-800:]}")
        if lab.exec(node, [*command(lab, node), "--status"], check=False, timeout_s=START_TIMEOUT_S).returncode == 0:
            return
        if time.monotonic() > deadline:
            raise LabError(f"chart-agent of {node} does not answer: {log.read_text().strip()[-800:]}")
        time.sleep(0.02)


@contextmanager
def running(
    lab: Lab, options: Mapping[str, Sequence[str]], capacities: Mapping[str, int] = MappingProxyType({})
) -> Iterator[None]:
    """Runs chart-agent on the nodes that are named, with more options of their own, ready when the block begins.

    `capacities`: of links that are not to be what the emulator gives them, by id, bits per second.
    """
    processes: list[tuple[str, subprocess.Popen[str], IO[str]]] = []
    try:
        for node, more in options.items():
            words = [*command(lab, node), "--cgroup", str(lab.node_cgroup(node)), *more]
            for link, end in all_ends(lab.topology):
                if end.node == node:
                    rate_bps = capacities.get(end.link_id, round((link.rate_mbit or 0) * 1e6))
                    words += ["--link", f"{end.link_id}={end.interface}" + (f":{rate_bps}" if rate_bps else "")]
            log = lab.node_directory(node) / "agent.log"
            output: IO[str] = log.open("w")
            process = lab.popen(node, words, stdout=output, stderr=output)
            processes.append((node, process, output))
            _await_agent(lab, node, process, log)
        yield
    finally:
        for _, process, output in processes:
            end_process(process)
            output.close()


@contextmanager
def agents(
    lab: Lab, grants: Mapping[str, list[dict[str, Any]]], more: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[None]:
    """Runs chart-agent on every node that has grants (and on no other), ready when the block begins.

    ``more``: further options of some of them.
    """
    options: dict[str, list[str]] = {}
    for node, own in grants.items():
        rates = lab.node_directory(node) / "rates.json"
        rates.write_text(json.dumps({"enforcement": "enforce", "grants": own}))
        options[node] = ["--rate-file", str(rates), *more.get(node, ())]
    with running(lab, options):
        yield
