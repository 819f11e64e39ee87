"""A running lab: namespaces, emulated links, cgroups; built, asked, impaired and removed.

What a lab consists of follows from its topology and id alone and is written to disk before anything is created, and
every process of a lab lives in a cgroup below chart/<lab>; so a fresh process can remove all of it after a crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from chart_lab import children, kernel, linkem, removal
from chart_lab.errors import LabError
from chart_lab.programs import program, state_directory
from chart_lab.topology import (
    Direction,
    Impairment,
    Link,
    Topology,
    all_ends,
    find_link,
    link_ends,
    management_address,
    node_address,
    routes,
)

START_TIMEOUT_S = 10.0
BUILD_TIMEOUT_S = 30.0
LINKS_CGROUP = "_links"
RUNTIME = Path("/run/chart-lab")
# Never removed: a lock on what others may remove holds nobody.
BUILD_LOCK = Path("/run/chart-lab.lock")
Progress = Callable[[str], None]


def quiet(_: str) -> None:
    """Progress that nobody sees."""


class Lab:
    """One lab. `up()` builds it, `down()` removes it; as a context manager it does both.

    Several labs with different ids may exist at once; only one of them can have the management bridge.
    """

    def __init__(
        self,
        topology: Topology,
        lab_id: str | None = None,
        *,
        state_dir: Path | None = None,
        seed: int = 1,
        management: bool = False,
        realtime: bool = True,
        series: bool = False,
    ) -> None:
        self.topology = topology
        self.id = lab_id or topology.name
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,20}", self.id):
            raise LabError(f"{self.id} is not an id of a lab: up to 21 of a-z, 0-9 and -, a letter first")
        self.directory = (state_dir or state_directory() / "lab") / self.id
        self.seed = seed
        self.management = management
        self.realtime = realtime
        self.series = series
        self.owns_bridge = False
        # Where the lab is registered, and where its nodes are enrolled; empty: nowhere.
        self.gateway = ""
        self.authority = ""

    # What stands on disk

    @property
    def _state_file(self) -> Path:
        return self.directory / "lab.json"

    def _write_state(self) -> None:
        state = {
            "id": self.id,
            "topology": self.topology.model_dump(mode="json", exclude_none=True),
            "seed": self.seed,
            "management": self.management,
            "owns_bridge": self.owns_bridge,
            "gateway": self.gateway,
            "authority": self.authority,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self._state_file.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(state, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._state_file)

    @classmethod
    def load(cls, lab_id: str, *, state_dir: Path | None = None) -> Lab:
        """The lab that stands on disk under this id. Raises LabError when there is none."""
        directory = (state_dir or state_directory() / "lab") / lab_id
        try:
            state = json.loads((directory / "lab.json").read_text())
        except FileNotFoundError:
            known = ", ".join(list_ids(state_dir)) or "none"
            raise LabError(f"there is no lab {lab_id} up (up: {known}): `chart lab up TOPOLOGY`") from None
        lab = cls(
            Topology.model_validate(state["topology"]),
            state["id"],
            state_dir=directory.parent,
            seed=state["seed"],
            management=state["management"],
        )
        lab.owns_bridge = state["owns_bridge"]
        lab.gateway = state["gateway"]
        # Labs that an earlier version built know of no authority.
        lab.authority = state.get("authority", "")
        return lab

    def standing(self) -> bool:
        """Whether a lab of this id is up or was left behind."""
        return self._state_file.exists() or self.cgroup.exists()

    def left_behind(self) -> bool:
        """Whether a lab of this id stands in which nothing runs any more, not even the emulators of its links."""
        return self.standing() and not kernel.cgroup_populated(self.cgroup)

    def remove_left_behind(self, progress: Progress = quiet) -> bool:
        """Removes what whoever built this lab left behind, killed; returns whether there was anything.

        A lab without emulated links may stand idle, so one of those is never taken for left behind.
        """
        if not (self.topology.links and self.left_behind()):
            return False
        progress("removing what was left behind of it")
        former = Lab.load(self.id, state_dir=self.directory.parent) if self._state_file.exists() else self
        former.down(progress)
        return True

    def set_platform(self, gateway: str, authority: str) -> None:
        """Remembers, before it happens, where this lab is registered and where its nodes are enrolled, if anywhere."""
        self.gateway = gateway
        self.authority = authority
        self._write_state()

    # Names

    @property
    def cgroup(self) -> Path:
        """The cgroup of the whole lab."""
        return kernel.cgroup_root() / "chart" / self.id

    def node_cgroup(self, node: str) -> Path:
        """The cgroup of a node's processes."""
        self.topology.node_number(node)
        return self.cgroup / node

    def namespace(self, node: str) -> str:
        """The name of a node's network namespace."""
        self.topology.node_number(node)
        return f"chart-{self.id}-{node}"

    def address(self, node: str) -> str:
        """The address of a node itself (on lo)."""
        return str(node_address(self.topology, node))

    def management_address(self, node: str) -> str:
        """The address of a node on the management bridge."""
        return str(management_address(self.topology, node).ip)

    def _bridge_port(self, node: str) -> str:
        return f"chart-m{self.topology.node_number(node)}"

    def node_directory(self, node: str) -> Path:
        """Where a node's processes keep state and logs."""
        return self.directory / node

    @property
    def runtime_directory(self) -> Path:
        """Where the lab's sockets are: a path short enough for a socket wherever the state lies."""
        return RUNTIME / self.id

    def control_socket(self, link: Link) -> Path:
        """The control socket of a link's emulator."""
        return self.runtime_directory / f"{link.name}.sock"

    # Life

    def __enter__(self) -> Lab:
        """Builds the lab, removing what stood when that fails."""
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the lab."""
        self.down()

    def up(self, progress: Progress = quiet) -> None:
        """Builds everything.

        Raises LabError; what was built until then stays for `down()`, which the caller owes in any case.
        """
        kernel.require_root()
        with kernel.exclusive(BUILD_LOCK, BUILD_TIMEOUT_S):
            self._build(progress)

    def _build(self, progress: Progress) -> None:
        self.remove_left_behind(progress)
        if self.standing():
            raise LabError(f"lab {self.id} is up: `chart lab down --lab {self.id}` removes it")
        ports = [self._bridge_port(node.name) for node in self.topology.nodes]
        if self.management and (taken := [port for port in ports if Path("/sys/class/net", port).exists()]):
            self.management = False
            raise LabError(
                "another lab has the management bridge; `chart lab status` names it, take it down first. If it names"
                f" none, a killed one left its ends: `ip link delete` each of {', '.join(taken)}"
            )
        self._write_state()
        (self.cgroup / LINKS_CGROUP).mkdir(parents=True, exist_ok=True)
        self.runtime_directory.mkdir(parents=True, exist_ok=True)
        if self.management:
            self.owns_bridge = True
            self._write_state()
            self.owns_bridge = kernel.create_bridge()
            self._write_state()
        for node in self.topology.nodes:
            progress(f"node {node.name}")
            self._create_node(node.name)
        for link in self.topology.links:
            progress(f"link {link.name}")
            self._start_link(link)
        for node in self.topology.nodes:
            wanted = [(str(r.destination), str(r.gateway), str(r.source)) for r in routes(self.topology, node.name)]
            kernel.add_routes(self.namespace(node.name), wanted)

    def _create_node(self, node: str) -> None:
        namespace = self.namespace(node)
        self.node_cgroup(node).mkdir(parents=True, exist_ok=True)
        self.node_directory(node).mkdir(parents=True, exist_ok=True)
        kernel.create_namespace(namespace)
        kernel.configure_interface(namespace, "lo", f"{self.address(node)}/32")
        if self.management:
            address = management_address(self.topology, node)
            kernel.join_bridge(namespace, self._bridge_port(node), str(address))

    def _start_link(self, link: Link) -> None:
        left, right = link_ends(self.topology, link)
        socket = self.control_socket(link)
        arguments = [
            *(str(program("lab/linkem")), "--control", str(socket)),
            *("--left", f"{self.namespace(left.node)}/{left.interface}"),
            *("--right", f"{self.namespace(right.node)}/{right.interface}"),
            *("--forward", json.dumps(link.direction("forward"))),
            *("--reverse", json.dumps(link.direction("reverse"))),
            *("--mtu", str(link.mtu), "--seed", str(self.seed * 1000 + self.topology.links.index(link))),
        ]
        if link.spin_us is not None:
            arguments += ["--spin-us", str(link.spin_us)]
        if link.coalesce_us is not None:
            arguments += ["--coalesce-us", str(link.coalesce_us)]
        if self.realtime:
            arguments.append("--realtime")
        if self.series:
            arguments += ["--series", str(self.directory / f"{link.name}.csv")]
        log = self.directory / f"{link.name}.log"
        with log.open("a") as output:
            process = subprocess.Popen(
                kernel.in_cgroup(self.cgroup / LINKS_CGROUP, arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._await_link(link, process, log)
        for end in (left, right):
            kernel.configure_interface(self.namespace(end.node), end.interface, str(end.address))

    def _await_link(self, link: Link, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if process.poll() is not None:
                raise LabError(f"the emulator of link {link.name} ended: {log.read_text().strip()[-500:]}")
            try:
                linkem.command(self.control_socket(link), command="get")
            except LabError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
                continue
            # `down` ends it through its cgroup.
            children.leave(process, self.cgroup)
            return

    def down(self, progress: Progress = quiet) -> None:
        """Removes everything of this lab, whatever of it exists."""
        progress(f"lab {self.id}: processes")
        removal.end_processes(self)
        removal.clean_agents(self)
        kernel.remove_cgroup(self.cgroup)
        children.reap(self.cgroup)
        with contextlib.suppress(OSError):
            self.cgroup.parent.rmdir()
        for node in self.topology.nodes:
            progress(f"node {node.name}")
            kernel.remove_namespace(self.namespace(node.name))
        if self.owns_bridge:
            kernel.remove_bridge()
        shutil.rmtree(self.runtime_directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            RUNTIME.rmdir()
        if self.directory.exists():
            shutil.rmtree(self.directory)

    # Use

    def processes(self, node: str) -> list[int]:
        """Ids of the processes that run in a node."""
        return kernel.cgroup_processes(self.node_cgroup(node))

    def command_line(self, node: str, command: Sequence[str]) -> list[str]:
        """The command line that runs a command in a node: its cgroup and its namespace; the process keeps one id."""
        return kernel.in_cgroup(self.node_cgroup(node), kernel.in_namespace(self.namespace(node), list(command)))

    def popen(
        self,
        node: str,
        command: Sequence[str],
        *,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.PIPE,
        stderr: int | IO[Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Starts a command in a node."""
        return subprocess.Popen(
            self.command_line(node, command), stdin=stdin, stdout=stdout, stderr=stderr, env=env, text=True
        )

    def exec(
        self, node: str, command: Sequence[str], *, timeout_s: float = 60.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a node to its end and returns its output.

        Raises LabError when it fails (and check) or takes longer than timeout_s.
        """
        try:
            result = subprocess.run(
                self.command_line(node, command), capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{' '.join(command)} in node {node} took longer than {timeout_s:g} s") from error
        if check and result.returncode != 0:
            told = (result.stderr or result.stdout).strip()[-500:]
            raise LabError(f"{' '.join(command)} in node {node} ended with {result.returncode}: {told}")
        return result

    def impair(self, link: str, impairment: Impairment, direction: Direction | None = None) -> None:
        """Changes parameters of a link while it runs.

        The name may be a pair of nodes or the id of a directed link; direction, where given, counts from left to right
        of the topology file.
        """
        found, implied = find_link(self.topology, link)
        linkem.command(
            self.control_socket(found),
            command="set",
            direction=direction or implied,
            parameters=impairment.parameters(),
        )

    def outage(self, link: str, duration_s: float, direction: Direction | None = None) -> None:
        """Takes a link out for a while; it comes back by itself."""
        found, implied = find_link(self.topology, link)
        linkem.command(
            self.control_socket(found),
            command="outage",
            direction=direction or implied,
            duration_us=round(duration_s * 1e6),
        )

    def parameters(self, link: str) -> dict[str, Any]:
        """What a link is set to: `forward` and `reverse` as lab/linkem/json.h describes."""
        found, _ = find_link(self.topology, link)
        return linkem.command(self.control_socket(found), command="get")

    def ground_truth(self, link: str) -> dict[str, Any]:
        """Counters of a link: `forward` and `reverse` as lab/linkem/json.h describes.

        `device_dropped_packets` of each direction counts what the sending node's device lost before the emulator.
        """
        found, _ = find_link(self.topology, link)
        answer = linkem.command(self.control_socket(found), command="counters")
        for direction, end in zip(("forward", "reverse"), link_ends(self.topology, found), strict=True):
            drops = kernel.device_drops(self.namespace(end.node))
            answer[direction]["device_dropped_packets"] = drops.get(end.interface, 0)
        return answer

    def reset_ground_truth(self, link: str) -> None:
        """Sets the counters of a link to zero."""
        found, _ = find_link(self.topology, link)
        linkem.command(self.control_socket(found), command="reset")

    def links_of(self, node: str) -> list[str]:
        """Ids of the directed links that a node transmits into."""
        return [end.link_id for _, end in all_ends(self.topology) if end.node == node]


def list_ids(state_dir: Path | None = None) -> list[str]:
    """Ids of the labs that stand on disk."""
    directory = state_dir or state_directory() / "lab"
    return sorted(path.parent.name for path in directory.glob("*/lab.json"))


def remove_all(progress: Progress = quiet, state_dir: Path | None = None) -> list[str]:
    """Removes every lab of this machine, also experiments that crashed, and returns their ids."""
    removed = list_ids(state_dir)
    for lab_id in removed:
        Lab.load(lab_id, state_dir=state_dir).down(progress)
    return removed + removal.remove_remains(RUNTIME)
