"""The product as it is installed, under an experiment (`--installed`): the platform with its authority as `make up`
starts it, and networks as `chart lab up --platform` leaves them: nodes registered and enrolled, agent and sensor pod on
each, mode `enforce`. No rate comes from a file: programs ask inside their own packets (`Transfer(in_band=True)` of
traffic.py), and for ordinary programs, which do not, a request over REST does (`Installation.rates`).

An experiment opens one installation and as many networks on it as it needs, one after the other:

    with installed.installation(report) as product, product.network(topology, seed) as lab:
        traffic.Transfer(lab, "alpha", "bravo", duration_s=10, in_band=True).finish()
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from chart.common.processes import end_process
from chart.maintenance.postgres_server import PostgresUnavailableError
from chart_lab import enrolment
from chart_lab.errors import LabError
from chart_lab.experiments import closed_loop, noise
from chart_lab.experiments.admission_platform import settings_in
from chart_lab.experiments.closed_loop import Flow, LoopRun, Watch
from chart_lab.experiments.framework import Report
from chart_lab.network import Lab
from chart_lab.platform.kafka import KafkaUnavailableError
from chart_lab.platform.laboratory import LaboratoryError, chart, client, fetch, request_rate, wait_ready
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.stack import Platform
from chart_lab.platform.supervisor import SupervisorError
from chart_lab.programs import program
from chart_lab.topology import Topology

READY_LIMIT_S = 120.0
ENROLLED_LIMIT_S = 60.0
ENFORCING_LIMIT_S = 30.0
# What the dashboard and the control loops of an idle network need before it is as quiet as it gets.
SETTLING_S = 1.0
REST_S = 3.0
FAILURES = (LaboratoryError, SupervisorError, KafkaUnavailableError, PostgresUnavailableError, httpx.HTTPError)


@dataclass(frozen=True)
class Installation:
    """A platform that is up, all of whose nodes enforce."""

    platform: Platform

    @property
    def settings(self) -> PlatformSettings:
        """Addresses and state directory of the platform."""
        return self.platform.settings

    def cpu_s(self) -> float:
        """Processor time that the platform's processes have used; those of nodes are the lab's own."""
        pid_file = self.platform.supervisor.directory / "supervisord.pid"
        return tree_cpu_s(int(pid_file.read_text())) if pid_file.exists() else 0.0

    @contextlib.contextmanager
    def network(self, topology: Topology, seed: int) -> Iterator[Lab]:
        """A network on the platform, ready when the block begins and gone afterwards.

        Its links leave processor time to the platform (`closed_loop.light`). Raises LabError that says what is missing
        when it does not come up.
        """
        name = f"x{secrets.token_hex(3)}"
        file = self.settings.state_dir / f"{name}.yaml"
        file.write_text(yaml.safe_dump(closed_loop.light(topology).model_dump(mode="json", exclude_none=True)))
        with _in_sentences():
            try:
                chart(self.settings, "lab", "up", str(file), "--lab", name, "--seed", str(seed), "--platform")
                lab = Lab.load(name, state_dir=self.settings.state_dir / "lab")
                with client(self.settings) as rest:
                    wait_ready(rest, READY_LIMIT_S)
                enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S)
                for node in lab.topology.nodes:
                    _await_signalling(lab, node.name)
                time.sleep(SETTLING_S)
                yield lab
            finally:
                file.unlink(missing_ok=True)
                with contextlib.suppress(LaboratoryError):
                    chart(self.settings, "lab", "down", "--lab", name)

    @contextlib.contextmanager
    def rates(self, bodies: Iterable[Mapping[str, Any]]) -> Iterator[None]:
        """Rate requests over REST, enforced by every node of their paths while the block runs.

        Raises LabError when one is refused or not enforced; says why.
        """
        with _in_sentences(), client(self.settings) as rest:
            made: list[str] = []
            try:
                for body in bodies:
                    request, _ = request_rate(rest, body)
                    made.append(request["id"])
                yield
            finally:
                for identity in made:
                    rest.post(f"/v1/rate-requests/{identity}/release")

    def run_flows(self, topology: Topology, flows: Sequence[Flow], bottleneck: str, seed: int) -> LoopRun:
        """The flows on a network of their own, those under `chart` at the rates that their programs ask for in band;
        as `closed_loop.run_flows` without what the streams say. Raises LabError when one fails or loses its rate.
        """
        with self.network(topology, seed) as lab:
            link = closed_loop.between(topology, bottleneck)
            lab.reset_ground_truth(link)
            before = noise.cpu_times(lab, self.cpu_s())
            began_ns, accounts = closed_loop.transfers(lab, flows, in_band=True)
            disturbed = noise.judge(before, noise.cpu_times(lab, self.cpu_s()), lab.ground_truth(link))
        found = list(zip(flows, accounts, strict=True))
        complaint = disturbed.complaint()
        if complaint is None:
            closed_loop.demand_held(found)
        return LoopRun(found, Watch(bottleneck), began_ns, complaint)


@contextlib.contextmanager
def installation(report: Report, **more: Any) -> Iterator[Installation]:
    """A platform of the experiment's own, whether or not another one runs; gone afterwards. ``more``: what its settings
    shall say besides.

    Raises LabError with what to do when it does not come up.
    """
    directory = Path(tempfile.mkdtemp(prefix="chart-installed-"))
    platform = Platform(settings_in(directory, **more))
    try:
        with _in_sentences():
            report("the platform comes up", 0.0)
            platform.up(lambda words: report(words, 0.0))
            with client(platform.settings) as rest:
                rest.put("/v1/policies/default", json={"enforcement": "enforce"}).raise_for_status()
        yield Installation(platform)
    finally:
        platform.down(purge=True)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _in_sentences() -> Iterator[None]:
    """What the platform cannot do, as the lab says such things."""
    try:
        yield
    except FAILURES as error:
        raise LabError(str(error)) from error


def begin(stack: contextlib.ExitStack, lab: Lab, node: str, command: list[str]) -> subprocess.Popen[str]:
    """A program on a node that says `ready` when it has begun, and is ended with the stack; it takes orders on standard
    input. Raises LabError when it does not begin.
    """
    process = lab.popen(node, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    # After its end: somebody may be reading.
    stack.callback(process.stdout.close)
    stack.callback(end_process, process)
    if "ready" not in process.stdout.readline():
        raise LabError(f"the program of {node} does not begin: {' '.join(command[1:])}")
    return process


def change_links(rest: httpx.Client, link_ids: Iterable[str], **fields: Any) -> None:
    """Change fields of links; what else the registry has of them stays."""
    for link_id in link_ids:
        stated = fetch(rest, f"/v1/links/{link_id}")
        kept = {name: stated[name] for name in ("to_node", "capacity_bps", "delay_us", "admission_share", "tags")}
        kept |= {name: stated[name] for name in ("scone", "quick_start")}
        rest.put(f"/v1/links/{link_id}", json=kept | fields).raise_for_status()


def agent_status(lab: Lab, node: str) -> dict[str, Any]:
    """Status of a node's agent; empty when it does not answer."""
    command = [str(program("dataplane/chart-agent")), "--state-dir", str(lab.node_directory(node)), "--status"]
    done = lab.exec(node, [*command, "--json"], check=False)
    told: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return told


def signals(status: dict[str, Any]) -> bool:
    """Whether a node takes part in signalling, by its agent's status: it enforces and knows elements and clients."""
    signalling, authority = status.get("signalling", {}), status.get("authority", {})
    return bool(
        status.get("enforcement") == "enforce"
        and signalling.get("running")
        and signalling.get("element")
        and authority.get("next_hops")
        and authority.get("authorisations")
    )


def _await_signalling(lab: Lab, node: str) -> None:
    """Until a node takes part in signalling. Raises LabError with its own account when it does not."""
    deadline = time.monotonic() + ENFORCING_LIMIT_S
    while not signals(status := agent_status(lab, node)):
        if time.monotonic() > deadline:
            told = {name: status.get(name) for name in ("enforcement", "authority", "signalling")}
            raise LabError(f"{node} does not signal in band after {ENFORCING_LIMIT_S:.0f} s: {json.dumps(told)[:600]}")
        time.sleep(0.1)


def rest(product: Installation | None) -> None:
    """Between two flows on one network: its controllers forget the one before, and no queue is left of it."""
    if product is not None:
        time.sleep(REST_S)


def tree_cpu_s(root: int) -> float:
    """Processor time of a process and all below it, those that ended and were waited for included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # Behind the name in parentheses: state, parent, nine numbers, then utime, stime, cutime and cstime.
            fields = path.read_text().rsplit(")", 1)[1].split()
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))

    def below(pid: int) -> bool:
        while pid > 1 and pid != root:
            pid = parents.get(pid, 0)
        return pid == root

    return sum(used for pid, used in ticks.items() if below(pid)) / os.sysconf("SC_CLK_TCK")
