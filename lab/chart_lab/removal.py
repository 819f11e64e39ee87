"""Taking a lab down: first those who can clean up after themselves, then by force, and what crashes left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from chart_lab import kernel
from chart_lab.errors import LabError
from chart_lab.programs import program
from chart_lab.topology import Topology, all_ends

SUPERVISOR_CGROUP = "_supervisor"
SUPERVISOR_PATIENCE_S = 10.0
NODE_PATIENCE_S = 5.0


class Removable(Protocol):
    """What of a lab is looked at here; see `chart_lab.network.Lab`."""

    topology: Topology

    @property
    def cgroup(self) -> Path:
        """The cgroup of the whole lab."""
        ...

    def node_cgroup(self, node: str) -> Path:
        """The cgroup of a node's processes."""
        ...

    def node_directory(self, node: str) -> Path:
        """Where a node's processes keep state and logs."""
        ...

    def processes(self, node: str) -> list[int]:
        """Ids of the processes that run in a node."""
        ...

    def exec(self, node: str, command: Sequence[str], *, timeout_s: float = ..., check: bool = ...) -> Any:
        """Runs a command in a node to its end."""
        ...


def _ask_to_end(running: Callable[[], list[int]], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    asked: set[int] = set()
    while (pids := running()) and time.monotonic() < deadline:
        for pid in set(pids) - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            asked.add(pid)
        time.sleep(0.02)


def end_processes(lab: Removable) -> None:
    """Asks the supervisor, then whatever else runs in the nodes, to end, so that agents remove what they attached."""
    _ask_to_end(lambda: kernel.cgroup_processes(lab.cgroup / SUPERVISOR_CGROUP), SUPERVISOR_PATIENCE_S)
    _ask_to_end(lambda: [pid for node in lab.topology.nodes for pid in lab.processes(node.name)], NODE_PATIENCE_S)


def clean_agents(lab: Removable) -> None:
    """Has chart-agent remove what a killed agent left behind outside cgroup and namespace (pinned programs)."""
    try:
        agent = str(program("dataplane/chart-agent"))
    except LabError:
        return
    for node in lab.topology.nodes:
        directory = lab.node_directory(node.name)
        if not (directory.exists() and any(directory.iterdir())):
            continue
        command = [agent, "--cleanup", "--node", node.name, "--state-dir", str(directory)]
        command += ["--cgroup", str(lab.node_cgroup(node.name))]
        for _, end in all_ends(lab.topology):
            if end.node == node.name:
                command += ["--link", f"{end.link_id}={end.interface}"]
        with contextlib.suppress(LabError):
            lab.exec(node.name, command, check=False, timeout_s=10)


def remove_remains(runtime: Path) -> list[str]:
    """Removes what labs left behind whose state is lost: the kernel's own objects name them. Returns their ids."""
    removed = []
    root = kernel.cgroup_root() / "chart"
    for folder in sorted(root.glob("*/")) if root.exists() else []:
        kernel.remove_cgroup(folder)
        removed.append(folder.name)
    for path in kernel.NAMESPACES.glob("chart-*"):
        kernel.remove_namespace(path.name)
    if not kernel.bridge_in_use():
        kernel.remove_bridge()
    shutil.rmtree(runtime, ignore_errors=True)
    with contextlib.suppress(OSError):
        root.rmdir()
    return removed
