"""`chart doctor`: checks this machine and the platform; each failed check has its fix."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import typer

from chart_client.commands.common import JsonOption, ServerOption, out, print_json
from chart_client.commands.supported_kernels import SUPPORTED_KERNELS
from chart_client.errors import UnreachableError
from chart_client.transport import DEFAULT_SERVER, Transport

Status = Literal["ok", "note", "failed"]
CONNECT_LIMIT_S = 2.0
# Leases last 10 s: clocks must agree far better than that.
CLOCK_LIMIT_S = 2.0
LAB_LIMIT_S = 20.0
CHECKED = re.compile(r'^chart_streams_record_checks_total\{result="(good|refused)",topic="[^"]+"\} (\S+)$', re.M)
PROGRAMS = (
    "dataplane/chart-agent",
    "lab/linkem",
    "sensors/ping",
    "sensors/pathchirp",
    "sensors/sensor-responder",
)


@dataclass(frozen=True)
class Finding:
    """One check: name, outcome, detail, and the fix when it failed."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def build_dir() -> Path:
    """Where the C programs are built: beside the environment that this command is installed in."""
    return Path(os.environ.get("CHART_BUILD_DIR", str(Path(sys.prefix).parent / "build")))


def _ok(name: str, good: bool, detail: str, otherwise: str, fix: str) -> Finding:
    return Finding(name, "ok", detail) if good else Finding(name, "failed", otherwise, fix)


def tried_kernel(release: str) -> Finding:
    """Whether `make kernel-test` runs a kernel like this one."""
    version = ".".join(release.split(".")[:2])
    if version in SUPPORTED_KERNELS:
        return Finding("kernel", "ok", f"Linux {release}; agents are tried on {version}")
    tried = ", ".join(SUPPORTED_KERNELS)
    return Finding("kernel", "note", f"Linux {release}; agents are tried on {tried}", "docs/deployment.md, Kernel")


def how_attached(types: bytes) -> str:
    """How an agent's programs get into a kernel with this type information, as `chart-agent --status` says it."""
    tcx, linked = (b"\0" + name + b"\0" in types for name in (b"BPF_TCX_INGRESS", b"BPF_STRUCT_OPS"))
    words = f"classifiers by {'tcx' if tcx else 'clsact'}, trinity by {'link' if linked else 'registration'}"
    return words if tcx and linked else f"{words}; after a kill the next start or chart-agent --cleanup removes them"


def kernel() -> Iterator[Finding]:
    """Checks of kernel features that the agents need."""
    types = Path("/sys/kernel/btf/vmlinux")
    yield _ok(
        "BTF",
        types.exists(),
        str(types),
        "the kernel has no BTF type information",
        "boot a kernel with CONFIG_DEBUG_INFO_BTF",
    )
    yield tried_kernel(platform.release())
    if types.exists():
        known = types.read_bytes()
        yield Finding("attachment", "ok", how_attached(known))
        able = b"bpf_struct_ops_tcp_congestion_ops" in known
        yield _ok(
            "struct_ops",
            able,
            "the kernel supports congestion control in BPF",
            "the kernel does not support congestion control in BPF",
            "boot a kernel with CONFIG_BPF_JIT that docs/deployment.md lists",
        )
    mounts = Path("/proc/mounts").read_text()
    kinds = {fields[2]: fields[1] for line in mounts.splitlines() if len(fields := line.split()) > 2}
    yield _ok(
        "cgroup v2",
        "cgroup2" in kinds,
        kinds.get("cgroup2", ""),
        "not mounted",
        "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified",
    )
    tun = Path("/dev/net/tun")
    yield _ok(
        "TUN/TAP",
        tun.exists() and stat.S_ISCHR(tun.stat().st_mode),
        str(tun),
        "the lab's links need /dev/net/tun",
        "mkdir -p /dev/net && mknod /dev/net/tun c 10 200",
    )
    controls = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if "trinity" in controls:
        yield Finding("trinity", "ok", "registered: an agent runs on this machine")
    else:
        yield Finding(
            "trinity", "note", "not registered: no agent runs on this machine", "chart lab up demo --platform"
        )
    yield _ok(
        "root", os.geteuid() == 0, "yes", "the lab and the agents need root", "use sudo for lab, agents and `chart run`"
    )


def programs(folder: Path) -> Iterator[Finding]:
    """Checks of the built programs; clang is needed for building only."""
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    objects = sorted((folder / "dataplane" / "bpf").glob("*.o"))
    if not objects:
        missing.append("dataplane/bpf/*.o")
    yield _ok("programs", not missing, f"built in {folder}", f"not built: {', '.join(missing)}", "make setup")
    for tool in ("ip", "iperf3"):
        yield _ok(tool, shutil.which(tool) is not None, shutil.which(tool) or "", "not installed", "make packages")


def answers(name: str, address: str, fix: str) -> Finding:
    """Whether something accepts connections at "host:port"."""
    host, _, port = address.split(",")[0].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_LIMIT_S):
            return Finding(name, "ok", f"accepts connections at {address}")
    except (OSError, ValueError) as error:
        return Finding(name, "failed", f"no answer at {address}: {error}", fix)


def gateway(server: str) -> Iterator[Finding]:
    """Checks of the gateway: reachable, its dependencies ready, clocks in step."""
    with Transport(server, None, timeout_s=10, transport=None) as transport:
        try:
            answer = transport.look("/readyz")
        except UnreachableError as error:
            yield Finding("gateway", "failed", str(error), "make up; its log is var/platform/logs/gateway.log")
            return
    try:
        checks = answer.json()["checks"]
    except (ValueError, KeyError, TypeError):
        yield Finding("gateway", "failed", f"{server} responds, but is not a CHART gateway", "check --server")
        return
    bad = {name: words for name, words in checks.items() if words != "ok"}
    words = "; ".join(f"{name}: {text}" for name, text in bad.items())
    yield _ok(
        "gateway",
        not bad,
        f"ready at {server}",
        f"not ready: {words}",
        "chart platform status; then see the logs it lists",
    )
    if "date" in answer.headers:
        apart_s = abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time())
        yield _ok(
            "clock",
            # The header has whole seconds.
            apart_s <= CLOCK_LIMIT_S + 1,
            "in step with the gateway's clock",
            f"{apart_s:.0f} s off the gateway's clock",
            "synchronise both clocks with NTP",
        )


def records(server: str) -> Iterator[Finding]:
    """Whether what nodes write is authentic, as the gateway counts it."""
    with Transport(server, None, timeout_s=10, transport=None) as transport:
        try:
            answer = transport.look("/metrics")
        except UnreachableError:
            # `gateway` said so.
            return
    yield records_checked(answer.text if answer.status_code == 200 else "")


def records_checked(metrics: str) -> Finding:
    """From the gateway's metrics."""
    counts = {"good": 0.0, "refused": 0.0}
    for result, count in CHECKED.findall(metrics):
        counts[result] += float(count)
    total = sum(counts.values())
    if not total:
        return Finding("records", "note", "the gateway checked no record of a node", "docs/security.md, Nodes")
    if counts["refused"]:
        told = f"{counts['refused']:.0f} of {total:.0f} records of nodes were not authentic since the gateway began"
        return Finding("records", "note", told, "chart node records shows of which nodes, and why")
    return Finding("records", "ok", f"all of {total:.0f} records of nodes are authentic")


def labs() -> Iterator[Finding]:
    """Whether the nodes of this machine's labs are enrolled, as their agents report."""
    command = [str(Path(sys.prefix) / "bin" / "chart"), "lab", "status", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LAB_LIMIT_S)
        yield from enrolment(json.loads(done.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        yield Finding("enrolment", "note", "the labs of this machine cannot be looked at", "chart lab status, as root")


def enrolment(described: Iterable[dict[str, Any]]) -> Iterator[Finding]:
    """From what `chart lab status --json` prints; labs without agents have nothing to enrol."""
    for lab in described:
        told = {node["name"]: node["enrolment"] for node in lab["nodes"] if node["enrolment"] is not None}
        missing = [name for name, one in told.items() if not one["enrolled"] or one["revoked"]]
        if told:
            yield _ok(
                "enrolment",
                not missing,
                f"all {len(told)} nodes of the lab {lab['lab']}",
                f"not enrolled in the lab {lab['lab']}: {', '.join(missing)}",
                "chart lab status; the agents' logs are in var/lab",
            )


def examine(server: str) -> list[Finding]:
    """The outcome of every check."""
    database = urlsplit(os.environ.get("CHART_DATABASE_URL", "postgresql://127.0.0.1:15432/chart"))
    parts: list[Callable[[], Iterator[Finding]]] = [kernel, lambda: programs(build_dir())]
    found = [finding for part in parts for finding in part()]
    found.append(answers("streams", os.environ.get("CHART_KAFKA_BOOTSTRAP", "127.0.0.1:19092"), "make up"))
    found.append(answers("database", f"{database.hostname}:{database.port or 5432}", "make up"))
    found.extend(gateway(server))
    found.extend(records(server))
    found.extend(labs())
    return found


def doctor(server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Check the kernel, the programs, the platform and the clock; exit status 1 when something is missing."""
    found = examine(server)
    if as_json:
        print_json({"findings": [asdict(finding) for finding in found]})
    else:
        marks = {"ok": "[green]ok    [/green]", "note": "[yellow]note  [/yellow]", "failed": "[red]failed[/red]"}
        for finding in found:
            out.print(f"{marks[finding.status]} {finding.name:11} ", end="")
            out.print(finding.detail, markup=False)
            if finding.fix:
                out.print(" " * 19, finding.fix, sep="", markup=False)
    if any(finding.status == "failed" for finding in found):
        raise typer.Exit(1)
