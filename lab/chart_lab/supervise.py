"""Processes of a platform lab's nodes, kept running by supervisord: agent, sensor pod, proxy and tunnel ends.

One supervisord per lab, outside the nodes; each program enters its node's cgroup and namespace before it starts. The
pod starts the responder and the sensors itself.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from chart.maintenance import broker_identities
from chart_lab import children, enrolment, kernel, supervisord
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.platform.settings import PlatformSettings
from chart_lab.programs import build_directory, program
from chart_lab.registration import POD_PORT
from chart_lab.removal import SUPERVISOR_CGROUP
from chart_lab.supervisord import Options, Supervised
from chart_lab.topology import MANAGEMENT_HOST, all_ends

POD_METRICS_PORT = 18210
AGENT_METRICS_PORT = 18220
NODE_KAFKA_PORT = 19093
START_TIMEOUT_S = 20.0
OPTIONS: Options = {"startsecs": 2, "startretries": 100000, "stopsignal": "TERM", "stopwaitsecs": 5}


def node_bootstrap() -> str:
    """Where nodes reach the broker: CHART_NODE_KAFKA_BOOTSTRAP, or the host's end of the management bridge."""
    port = os.environ.get("CHART_KAFKA_NODE_PORT", str(NODE_KAFKA_PORT))
    return os.environ.get("CHART_NODE_KAFKA_BOOTSTRAP", f"{MANAGEMENT_HOST.ip}:{port}")


def write_sensor_key(path: Path) -> None:
    """A random key that all sensors of the lab share (format: sensors/lib/keyring.h), readable by root alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"1 {secrets.token_hex(32)}\n")


def broker_file(lab: Lab, node: str) -> Path:
    """Where agent and pod of a node find how they speak to the broker."""
    return lab.node_directory(node) / broker_identities.PROPERTIES


def broker_environment(lab: Lab, node: str) -> dict[str, str]:
    """By which agent and pod of a node speak to a broker under TLS: with the certificate that the agent keeps.

    Raises LabError where there is no authority that gives one.
    """
    if not PlatformSettings().kafka_tls:
        return {}
    if not lab.authority:
        raise LabError("CHART_KAFKA_TLS: the broker takes enrolled nodes alone; build the lab without --no-enrol")
    directory = lab.node_directory(node)
    file = broker_file(lab, node)
    file.write_text(
        broker_identities.properties(enrolment.authority_ca(), directory / "node.pem", directory / "node.key")
    )
    return {"CHART_KAFKA_PROPERTIES": str(file)}


def agent(lab: Lab, node: str) -> Supervised:
    """The node's chart-agent with all the node's links and their capacities, and the authority that enrols it."""
    directory = lab.node_directory(node)
    command = [str(program("dataplane/chart-agent")), "--node", node, "--state-dir", str(directory)]
    command += ["--cgroup", str(lab.node_cgroup(node)), "--bootstrap", node_bootstrap()]
    command += ["--metrics", f"{lab.management_address(node)}:{AGENT_METRICS_PORT}"]
    for link, end in all_ends(lab.topology):
        if end.node == node:
            parameters = link.direction("forward" if node == link.ends[0] else "reverse")
            rate_bps = parameters.get("rate_bps")
            command += ["--link", f"{end.link_id}={end.interface}" + (f":{rate_bps}" if rate_bps else "")]
    if lab.authority:
        command += ["--authority", lab.authority, "--authority-ca", str(enrolment.authority_ca())]
        command += ["--enrolment-token-file", str(enrolment.token_file(lab, node))]
    environment = {"CHART_NODE": node, **broker_environment(lab, node)}
    return Supervised(f"agent-{node}", lab.command_line(node, command), environment, directory / "agent.log", OPTIONS)


def pod(lab: Lab, node: str, key: Path) -> Supervised:
    """The node's sensor pod."""
    directory = lab.node_directory(node)
    executable = Path(sys.executable).parent / "chart-sensor-pod"
    if not executable.exists():
        raise LabError(f"{executable} is not installed: run `make setup`")
    address = lab.management_address(node)
    environment = {
        "CHART_NODE": node,
        "CHART_STATE_DIR": str(directory),
        "CHART_KAFKA_BOOTSTRAP": node_bootstrap(),
        "CHART_GRPC_LISTEN": f"{address}:{POD_PORT}",
        "CHART_HTTP_LISTEN": f"{address}:{POD_METRICS_PORT}",
        "CHART_SENSOR_KEY_FILE": str(key),
        "CHART_BUILD_DIR": str(build_directory()),
        **enrolment.pod_environment(lab, node),
        **broker_environment(lab, node),
    }
    return Supervised(
        f"pod-{node}", lab.command_line(node, [str(executable)]), environment, directory / "pod.log", OPTIONS
    )


def tunnel_ends(lab: Lab, node: str) -> Supervised:
    """What runs the ends of tunnels that the registry states for a node; they know each other by the authority."""
    directory = lab.node_directory(node)
    command = [str(program("dataplane/chart-tunnel")), "node", "--state-dir", str(directory)]
    command += ["--authority", lab.authority, "--authority-ca", str(enrolment.authority_ca())]
    command += ["--broker", node_bootstrap()]
    log = directory / "tunnel-ends.log"
    return Supervised(
        f"tunnel-ends-{node}", lab.command_line(node, command), broker_environment(lab, node), log, OPTIONS
    )


def proxy(lab: Lab, node: str) -> Supervised:
    """The node's chart-proxy, which takes what the registry states: nothing at first."""
    directory = lab.node_directory(node)
    command = [str(program("dataplane/chart-proxy")), "--state-dir", str(directory)]
    return Supervised(f"proxy-{node}", lab.command_line(node, command), {}, directory / "proxy.log", OPTIONS)


def configuration(processes: list[Supervised], socket: Path, directory: Path) -> str:
    """Text of supervisord.conf; a program that ends is started again, at growing intervals while it fails early."""
    logs = {"logfile": directory / "supervisord.log", "childlogdir": directory}
    return supervisord.configuration(directory, socket, processes, {**logs, "nodaemon": "true", "silent": "true"})


def _control(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor.supervisorctl", "-c", str(lab.directory / "supervisord.conf")]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=30)


def control(lab: Lab, action: Literal["start", "stop"], name: str) -> None:
    """Starts or stops one supervised process and returns when it runs or has ended.

    Raises:
        LabError: it did not, with supervisord's own words.
    """
    done = _control(lab, action, name)
    if done.returncode != 0:
        raise LabError(f"supervisord does not {action} {name}: {(done.stdout + done.stderr).strip()}")


def processes(lab: Lab) -> Iterator[tuple[str, str, str]]:
    """Name, state (RUNNING, BACKOFF, ...) and details of every supervised process."""
    if not (lab.directory / "supervisord.conf").exists():
        return
    for line in _control(lab, "status").stdout.splitlines():
        name, state, *details = line.split(None, 2)
        yield name, state, details[0] if details else ""


def node_processes(lab: Lab) -> list[Supervised]:
    """Agent, pod, proxy and, with an authority, tunnel ends of every node of a lab that is up with its bridge.

    Raises LabError when a program is not built or installed.
    """
    key = lab.directory / "sensor.key"
    write_sensor_key(key)
    names = [node.name for node in lab.topology.nodes]
    beside = [proxy(lab, name) for name in names]
    if lab.authority:
        beside += [tunnel_ends(lab, name) for name in names]
    return [agent(lab, name) for name in names] + [pod(lab, name, key) for name in names] + beside


def start(lab: Lab, wanted: list[Supervised]) -> None:
    """Starts supervisord for a lab that is up, and waits until it serves.

    Raises LabError when it does not within 20 s.
    """
    path = lab.directory / "supervisord.conf"
    path.write_text(configuration(wanted, lab.runtime_directory / "supervisor.sock", lab.directory))
    cgroup = lab.cgroup / SUPERVISOR_CGROUP
    cgroup.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", str(path)]
    output = lab.directory / "supervisord.out"
    with output.open("w") as file:
        process = subprocess.Popen(
            kernel.in_cgroup(cgroup, command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            cwd="/",
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(list(processes(lab))) < len(wanted):
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"supervisord of lab {lab.id} does not serve: {output.read_text().strip()[-500:]}")
        time.sleep(0.05)
    children.leave(process, lab.cgroup)
