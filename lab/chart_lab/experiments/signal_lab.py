"""In-band signalling in an experiment: an agent per element, keys and next hops from a file as authority would give.

Every element's number is its node's number in the topology; every ordered pair has a key of its own.
"""

from __future__ import annotations

import itertools
import json
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from chart.common.processes import end_process
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.programs import program
from chart_lab.topology import Topology, all_ends, first_hops, node_address, node_networks

AGENT = "dataplane/chart-agent"
START_TIMEOUT_S = 15.0
ALL_SERVICES = ("available", "guaranteed", "maximum", "variable")


@dataclass
class Signals:
    """What every element of a lab is told: the fields of the agent's signal file."""

    topology: Topology
    elements: tuple[str, ...] = ()
    epoch: int = 1
    policy: dict[str, Any] = field(default_factory=dict)
    authorisations: list[dict[str, Any]] | None = None
    asks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    default_asks: dict[str, list[str]] = field(default_factory=dict)
    links: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    keys: dict[tuple[int, int, int], str] = field(default_factory=dict)
    # Addresses of a node beyond those of the topology, for next hops and authorisations.
    more_addresses: dict[str, list[str]] = field(default_factory=dict)
    # Links that the topology does not know: options of --link.
    more_links: dict[str, list[str]] = field(default_factory=dict)
    # More options of every element's agent, such as --bootstrap.
    more_options: tuple[str, ...] = ()
    shim: bool = True

    def __post_init__(self) -> None:
        """Every node is an element unless it is said which are."""
        self.elements = self.elements or tuple(node.name for node in self.topology.nodes)

    def number(self, node: str) -> int:
        """The element id of a node."""
        return self.topology.node_number(node)

    def key(self, sender: int, receiver: int, epoch: int | None = None) -> str:
        """The key of an ordered pair and epoch, made when it is first asked for; 64 hexadecimal digits."""
        return self.keys.setdefault((sender, receiver, epoch or self.epoch), secrets.token_hex(32))

    def next_element(self, node: str, destination: str) -> str | None:
        """The next element on the way from a node to another; None when there is none before or at the destination."""
        here = node
        while here != destination:
            hops = first_hops(self.topology, here)
            if destination not in hops:
                return None
            here = hops[destination].peer
            if here in self.elements:
                return here
        return None

    def addresses(self, node: str) -> list[str]:
        """All prefixes of a node that carry test traffic."""
        return [str(network) for network in node_networks(self.topology, node)] + self.more_addresses.get(node, [])

    def file(self, node: str) -> dict[str, Any]:
        """The signal file of one element."""
        own = self.number(node)
        hops = []
        for other in self.topology.nodes:
            element = self.next_element(node, other.name) if other.name != node else None
            if element is None:
                continue
            shim = {"shim_address": str(node_address(self.topology, element))} if self.shim else {}
            hops += [
                {"prefix": prefix, "element": self.number(element), **shim} for prefix in self.addresses(other.name)
            ]
        pairs = [
            (sender, receiver)
            for sender in map(self.number, self.elements)
            for receiver in map(self.number, self.elements)
            if sender != receiver and own in (sender, receiver)
        ]
        authorisations = self.authorisations
        if authorisations is None:
            authorisations = [
                {
                    "prefix": prefix,
                    "guaranteed_bps": 10**12,
                    "available_bps": 10**12,
                    "preemption_priority": 255,
                    "delay_priority": 255,
                    "services": list(ALL_SERVICES),
                }
                for each in self.topology.nodes
                for prefix in self.addresses(each.name)
            ]
        return {
            "element": own,
            "policy": self.policy,
            "shim": {"ipv4": str(node_address(self.topology, node))} if self.shim else {},
            "keys": [{"sender": s, "receiver": r, "epoch": self.epoch, "key": self.key(s, r)} for s, r in pairs],
            "next_hops": hops,
            "authorisations": authorisations,
            "asks": self.asks.get(node, []),
            "default_asks": self.default_asks.get(node, []),
            "links": self.links.get(node, []),
        }


def ask(
    *, port: int = 0, available_bps: float = 0, guaranteed_bps: float = 0, protocol: str = "tcp", **more: Any
) -> dict[str, Any]:
    """An ask for all flows to a port."""
    return {
        "selector": {"protocol": protocol, "destination_port": port},
        "available_bps": round(available_bps),
        "guaranteed_bps": round(guaranteed_bps),
        **more,
    }


class Element:
    """chart-agent with in-band signalling on one node of a lab."""

    def __init__(self, lab: Lab, signals: Signals, node: str) -> None:
        self.lab, self.signals, self.node = lab, signals, node
        self.directory = lab.node_directory(node)
        self.path = self.directory / "signals.json"
        self.mode_path = self.directory / "rates.json"
        self.process: subprocess.Popen[str] | None = None
        self._output: IO[str] | None = None

    def write(self) -> None:
        """States the signal file, replacing it at once."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self.signals.file(self.node)))
        fresh.chmod(0o600)
        fresh.rename(self.path)
        # What a policy says where there is a broker.
        self.mode_path.write_text(json.dumps({"enforcement": "enforce"}))

    def _command(self, *words: str) -> list[str]:
        return [str(program(AGENT)), "--state-dir", str(self.directory), *words]

    def start(self) -> None:
        """Starts the agent and waits until it answers."""
        self.write()
        command = self._command("--node", self.node, "--cgroup", str(self.lab.node_cgroup(self.node)))
        command += ["--signal-file", str(self.path), *self.signals.more_options]
        if "--bootstrap" not in self.signals.more_options:
            command += ["--rate-file", str(self.mode_path)]
        for link, end in all_ends(self.lab.topology):
            if end.node == self.node:
                rate_bps = round((link.rate_mbit or 0) * 1e6)
                command += ["--link", f"{end.link_id}={end.interface}" + (f":{rate_bps}" if rate_bps else "")]
        for option in self.signals.more_links.get(self.node, []):
            command += ["--link", option]
        log = self.directory / "agent.log"
        if self._output is not None:
            self._output.close()
        self._output = log.open("a")
        self.process = self.lab.popen(self.node, command, stdout=self._output, stderr=self._output)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.lab.exec(self.node, self._command("--status"), check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"chart-agent of {self.node} does not answer: {log.read_text().strip()[-800:]}")
            time.sleep(0.02)

    def status(self) -> dict[str, Any]:
        """The agent's status."""
        told: dict[str, Any] = json.loads(self.lab.exec(self.node, self._command("--status", "--json")).stdout)
        return told

    def counters(self) -> dict[str, int]:
        """The counters of the program `signal`."""
        counted: dict[str, int] = self.status()["signalling"]["counters"]
        return counted

    def link(self, interface: str) -> dict[str, Any]:
        """What a link of this element has promised."""
        found: dict[str, Any] = next(
            link for link in self.status()["signalling"]["links"] if link["interface"] == interface
        )
        return found

    def kill(self) -> None:
        """Ends the agent as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Ends the agent in order, when it still runs."""
        if self.process is not None:
            end_process(self.process)
        if self._output is not None:
            self._output.close()
            self._output = None


@contextmanager
def elements(lab: Lab, signals: Signals, nodes: Sequence[str] | None = None) -> Iterator[Mapping[str, Element]]:
    """Runs an element on every node named (or every element of `signals`), ready when the block begins."""
    running = {node: Element(lab, signals, node) for node in (nodes or signals.elements)}
    try:
        for element in running.values():
            element.start()
        yield running
    finally:
        for element in running.values():
            element.stop()


def line_topology(names: Sequence[str], **link: Any) -> Topology:
    """Nodes in a row."""
    return Topology.model_validate(
        {
            "name": "line",
            "nodes": [{"name": name} for name in names],
            "links": [{"ends": list(pair), **link} for pair in itertools.pairwise(names)],
        }
    )
