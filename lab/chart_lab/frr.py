"""Routers of FRRouting in the nodes of a lab: OSPF, and with it BFD, as a network without CHART has them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from chart.common.processes import end_process
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.topology import all_ends

DAEMONS = Path("/usr/lib/frr")
USER = "frr"
MISSING = "FRRouting is missing: `make routing-peers`, or apt-get install frr"
CONVERGENCE_TIMEOUT_S = 90.0
LOOK_S = 0.1


@dataclass(frozen=True)
class Ospf:
    """How failures are found: hello and dead interval of RFC 2328's defaults (10 and 40 s) or a dead interval of one
    second with four hellos in it; with BFD (RFC 5880), 3 times 50 ms."""

    dead_one_second: bool = False
    bfd: bool = False
    # New routes at once instead of after OSPF's own pauses (FRRouting's `timers`).
    quick: bool = False
    # Costs of interfaces by the delay of their links; otherwise by OSPF's default, their speed.
    costs: bool = False


def available() -> bool:
    """Whether the daemons are installed."""
    return all((DAEMONS / name).exists() for name in ("zebra", "ospfd", "bfdd"))


def ospf_configuration(lab: Lab, node: str, ospf: Ospf) -> str:
    """ospfd.conf of a node: OSPF on all its links, and its own address told to the others."""
    lines = [f"hostname {node}"]
    for link, end in all_ends(lab.topology):
        if end.node != node:
            continue
        lines += [f"interface {end.interface}", " ip ospf area 0", " ip ospf network point-to-point"]
        if ospf.costs:
            lines.append(f" ip ospf cost {max(1, round(10 * (link.delay_ms or 0)))}")
        if ospf.dead_one_second:
            lines.append(" ip ospf dead-interval minimal hello-multiplier 4")
        if ospf.bfd:
            lines += [" ip ospf bfd", " ip ospf bfd profile quick"]
    lines += ["interface lo", " ip ospf area 0", "router ospf", f" ospf router-id {lab.address(node)}"]
    if ospf.quick:
        lines += [" timers throttle lsa all 0", " timers lsa min-arrival 0", " timers throttle spf 0 10 100"]
    return "\n".join(lines) + "\n"


BFD_CONFIGURATION = (
    "bfd\n profile quick\n  detect-multiplier 3\n  transmit-interval 50\n  receive-interval 50\n exit\nexit\n"
)


def _start(lab: Lab, node: str, directory: Path, daemon: str, configuration: str, *more: str) -> subprocess.Popen[str]:
    file = directory / f"{daemon}.conf"
    file.write_text(configuration)
    words = [
        *(str(DAEMONS / daemon), "-u", USER, "-g", USER, "-f", str(file), "-i", str(directory / f"{daemon}.pid")),
        *("-z", str(directory / "zserv.api"), "--vty_socket", str(directory), "-A", "127.0.0.1", "-P", "0"),
        *("--log", "stdout", *more),
    ]
    with (directory / f"{daemon}.log").open("w") as log:
        return lab.popen(node, words, stdout=log, stderr=log)


def _router(lab: Lab, stack: ExitStack, node: str, ospf: Ospf) -> None:
    # The daemons give up root, and have to reach each other where nobody else's files are in the way.
    directory = lab.runtime_directory / f"frr-{node}"
    directory.mkdir(parents=True, exist_ok=True)
    shutil.chown(directory, USER, USER)
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    stack.callback(end_process, _start(lab, node, directory, "zebra", f"hostname {node}\n"))
    deadline = time.monotonic() + CONVERGENCE_TIMEOUT_S
    while not (directory / "zserv.api").exists():
        if time.monotonic() > deadline:
            raise LabError(f"zebra of {node} does not start: {(directory / 'zebra.log').read_text()[-500:]}")
        time.sleep(LOOK_S)
    if ospf.bfd:
        control = ["--bfdctl", str(directory / "bfdd.sock")]
        stack.callback(end_process, _start(lab, node, directory, "bfdd", BFD_CONFIGURATION, *control))
    stack.callback(end_process, _start(lab, node, directory, "ospfd", ospf_configuration(lab, node, ospf)))


def learned(lab: Lab, node: str, address: str) -> bool:
    """Whether a node has a route to exactly this address by OSPF."""
    told = lab.exec(node, ["ip", "route", "show", f"{address}/32", "proto", "ospf"], check=False).stdout
    return bool(told.strip())


@contextlib.contextmanager
def routing(lab: Lab, ospf: Ospf) -> Iterator[None]:
    """OSPF on all nodes instead of the lab's routes, converged when the block begins. Raises LabError."""
    if not available():
        raise LabError(MISSING)
    nodes = [node.name for node in lab.topology.nodes]
    with ExitStack() as stack:
        for node in nodes:
            for line in lab.exec(node, ["ip", "route", "show"]).stdout.splitlines():
                if " via " in line:
                    lab.exec(node, ["ip", "route", "del", *line.split()[:3]])
            _router(lab, stack, node, ospf)
        deadline = time.monotonic() + CONVERGENCE_TIMEOUT_S
        wanted = [(node, lab.address(other)) for node in nodes for other in nodes if other != node]
        while missing := [f"{node} to {address}" for node, address in wanted if not learned(lab, node, address)]:
            if time.monotonic() > deadline:
                raise LabError(f"OSPF does not converge within {CONVERGENCE_TIMEOUT_S:g} s: {', '.join(missing[:3])}")
            time.sleep(LOOK_S)
        yield
