"""`failover`: how long nothing arrives when the path of a flow is cut, through the overlay and through OSPF.

`two-path`, the northern way the shorter one: 1,000 numbered datagrams per second each way between source and
destination, and ten TCP connections, while one of the northern links is cut at random moments: both directions at
once, one of them, silently each time, and so that both ends lose the carrier. Peers are FRRouting's OSPF with a dead
interval of 1 s, with BFD 3 times 50 ms and without OSPF's own pauses, and with its defaults (Bavier et al., Increasing
TCP Throughput with an Enhanced Internet Control Plane, section V: the overlay fails over in a third of OSPF's time).
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chart.common.processes import end_process
from chart_lab import frr, numbered_datagrams, topology
from chart_lab.errors import LabError
from chart_lab.experiments import agents, overlay_nodes
from chart_lab.experiments.failover_judge import (
    BFD,
    CARRIER,
    OSPF,
    OSPF_DEFAULT,
    OVERLAY,
    SILENT,
    Cut,
    evaluate,
    outage_s,
)
from chart_lab.experiments.framework import Experiment, Outcome, Report, Settings, temporary_lab
from chart_lab.network import Lab
from chart_lab.programs import program
from chart_lab.topology import Direction, Topology

SOURCE, DESTINATION = "source", "destination"
# Of each router, the hosts behind it.
OWNED: Mapping[str, Sequence[str]] = {"ingress": [SOURCE], "north": [], "south": [], "egress": [DESTINATION]}
NORTH_MS, SOUTH_MS = 10.0, 12.0
LOW_LOSS, HIGH_LOSS = 0.005, 0.05
LINKS = ("ingress-north", "north-egress")
PACKETS_PER_S = 1000.0
PORTS, CONNECTION_PORT = (7001, 7002), 7101
CONNECTIONS = 10
CONNECTION_MBIT = 0.2
# The streams have begun, and the overlay has learnt what its links lose.
WARM_UP_S = 15.0
BACK_TIMEOUT_S = 120.0
BACK_LOOK_S = 0.2
COMMAND_LIMIT_S = 10.0
# Packets on the northern way in one look that show that the stream is back; probes alone are fewer.
BACK_PACKETS = 120
SILENT_KINDS: Mapping[str, Direction] = {"both": "both", "forward": "forward", "reverse": "reverse"}
STREAM = [sys.executable, "-m", "chart_lab.numbered_datagrams"]


@dataclass(frozen=True)
class Scheme:
    """Who routes, for how long a cut has to last so that it is over before it is mended, how long routes have to be at
    rest before one (OSPF tells no more than one change of a router in 5 s), and how many cuts of each kind there are.
    """

    name: str
    hold_s: float
    rest_s: float
    cuts: Mapping[str, int]


def schemes(repeat: int) -> list[Scheme]:
    """All of them; ``repeat`` cuts of each silent kind through the overlay."""
    few = max(1, repeat // 4)
    every = {**dict.fromkeys(SILENT, repeat), CARRIER: repeat}
    peers = {**dict.fromkeys(SILENT, few), CARRIER: few}
    return [
        Scheme(OVERLAY, 1.5, 1.0, every),
        Scheme(OSPF, 4.0, 6.0, peers),
        Scheme(BFD, 4.0, 6.0, peers),
        Scheme(OSPF_DEFAULT, 50.0, 6.0, {"both": 1}),
    ]


def wide_area(base: Topology, north: Mapping[str, float], south: Mapping[str, float]) -> Topology:
    """`two-path` with these parameters of its two wide-area links; the others lose nothing."""
    links = []
    for link in base.links:
        changes: dict[str, Any] = {"loss": 0.0}
        if link.delay_ms:
            changes |= north if "north" in link.ends else south
        links.append(link.model_copy(update=changes))
    return base.model_copy(update={"links": links})


def ways(base: Topology, loss: float) -> Topology:
    """The topology with a shorter northern way and this loss on both wide-area links."""
    return wide_area(base, {"loss": loss, "delay_ms": NORTH_MS}, {"loss": loss, "delay_ms": SOUTH_MS})


@contextlib.contextmanager
def _overlay(lab: Lab) -> Iterator[None]:
    files = overlay_nodes.write(lab, OWNED)
    with agents.running(lab, {node: ["--overlay-file", str(path)] for node, path in files.items()}):
        yield


def routed_by(lab: Lab, scheme: str) -> AbstractContextManager[None]:
    """The scheme in a lab, while the block runs."""
    if scheme == OVERLAY:
        return _overlay(lab)
    return frr.routing(
        lab, frr.Ospf(dead_one_second=scheme in (OSPF, BFD), bfd=scheme == BFD, quick=scheme == BFD, costs=True)
    )


def begin(lab: Lab, stack: ExitStack, node: str, words: Sequence[str]) -> None:
    """A program in a node until the stack unwinds; returns when it is ready. Raises LabError."""
    process = lab.popen(node, words, stdout=subprocess.PIPE)
    stack.callback(end_process, process)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    if "ready" not in process.stdout.readline():
        raise LabError(f"{' '.join(words)} in node {node} does not begin")


def _stream(lab: Lab, stack: ExitStack, own: str, peer: str, port: int) -> Path:
    """A stream from one node to the other; where its arrivals stand."""
    file = lab.node_directory(peer) / f"from-{own}"
    for node, words in (
        (peer, ["hear", lab.address(peer), str(port), str(file)]),
        (own, ["send", lab.address(own), lab.address(peer), str(port), f"{PACKETS_PER_S:g}"]),
    ):
        begin(lab, stack, node, [*STREAM, *words])
    return file


class Connections:
    """TCP connections that have to outlive every cut: each sends a little all the time."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self._pairs: list[tuple[subprocess.Popen[str], subprocess.Popen[str]]] = []
        tool = str(program("lab/bulk"))
        for number in range(CONNECTIONS):
            address = f"{lab.address(DESTINATION)}:{CONNECTION_PORT + number}"
            pair = []
            for node, words in (
                (DESTINATION, ["receive", "--listen", address]),
                (SOURCE, ["send", "--connect", address, "--bind", lab.address(SOURCE), "--duration-s", "7200"]),
            ):
                offered = ["--offered-mbit", f"{CONNECTION_MBIT:g}"] if node == SOURCE else []
                process = lab.popen(node, [tool, *words, *offered], stderr=subprocess.PIPE)
                stack.callback(end_process, process)
                for output in (process.stdout, process.stderr):
                    assert output is not None
                    stack.callback(output.close)
                if node == DESTINATION:
                    assert process.stderr is not None
                    if "listening" not in process.stderr.readline():
                        raise LabError(f"nothing listens at {address}")
                pair.append(process)
            self._pairs.append((pair[0], pair[1]))

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self._pairs)

    def broken(self) -> int:
        """How many have ended."""
        return sum(any(process.poll() is not None for process in pair) for pair in self._pairs)


def set_carrier(lab: Lab, link: str, state: str) -> None:
    """Both ends of a link, up or down, as nearly at once as two commands can be: a cable has one carrier."""
    left, right = link.split("-")
    commands = [
        lab.popen(node, ["ip", "link", "set", f"to-{other}", state], stdout=None)
        for node, other in ((left, right), (right, left))
    ]
    if any(command.wait(COMMAND_LIMIT_S) for command in commands):
        raise LabError(f"the interfaces of {link} cannot be set {state}")


def cut_and_mend(lab: Lab, kind: str, link: str, hold_s: float) -> float:
    """One cut, which lasts so long; when it was (seconds since the epoch)."""
    if kind == CARRIER:
        at_s = time.time()
        set_carrier(lab, link, "down")
        time.sleep(hold_s)
        set_carrier(lab, link, "up")
    else:
        at_s = time.time()
        lab.outage(link, hold_s, SILENT_KINDS[kind])
        time.sleep(hold_s + 0.05)
    return at_s


def await_north(lab: Lab) -> None:
    """Returns when both directions take the northern way again. Raises LabError."""
    deadline = time.monotonic() + BACK_TIMEOUT_S

    def counted() -> list[int]:
        truth = [lab.ground_truth(link) for link in LINKS]
        return [int(one[direction]["carried"]["packets"]) for one in truth for direction in ("forward", "reverse")]

    before = counted()
    while True:
        time.sleep(BACK_LOOK_S)
        after = counted()
        if all(b - a > BACK_PACKETS for a, b in zip(before, after, strict=True)):
            return
        before = after
        if time.monotonic() > deadline:
            raise LabError(f"packets do not take the northern way within {BACK_TIMEOUT_S:g} s of its mending")


def run_scheme(
    lab: Lab, scheme: Scheme, loss: float, chance: random.Random, report: Callable[[str], None]
) -> tuple[list[Cut], int]:
    """All cuts of one scheme, and how many connections broke. Raises LabError."""
    with ExitStack() as stack:
        stack.enter_context(routed_by(lab, scheme.name))
        files = [
            _stream(lab, stack, SOURCE, DESTINATION, PORTS[0]),
            _stream(lab, stack, DESTINATION, SOURCE, PORTS[1]),
        ]
        connections = Connections(lab, stack)
        time.sleep(WARM_UP_S)
        kinds = [kind for kind, number in scheme.cuts.items() for _ in range(number)]
        chance.shuffle(kinds)
        happened: list[tuple[str, str, float, float]] = []
        for number, kind in enumerate(kinds):
            report(f"{scheme.name}: cut {number + 1} of {len(kinds)}")
            await_north(lab)
            time.sleep(scheme.rest_s + chance.random() * 0.2)
            link = chance.choice(LINKS)
            at_s = cut_and_mend(lab, kind, link, scheme.hold_s)
            happened.append((kind, link, at_s, at_s + scheme.hold_s))
        time.sleep(1.0)
        broken = connections.broken()
        arrivals = [sorted(at_s for _, at_s in numbered_datagrams.read(file)) for file in files]
    cuts = []
    for kind, link, at_s, until_s in happened:
        seen = [outage_s(one, at_s, until_s, 1 / PACKETS_PER_S) for one in arrivals]
        whole = [one for one in seen if one is not None]
        cuts.append(Cut(scheme.name, kind, link, loss, max(whole) * 1e3 if len(whole) == len(seen) else None))
    return cuts, broken


def table(cuts: Sequence[Cut]) -> str:
    """Markdown: one line per scheme and kind of cut."""
    lines = ["# Outages when a path is cut", "", "| scheme | loss each way | cut | cuts | median ms | greatest ms |"]
    lines.append("| --- " * 6 + "|")
    groups: dict[tuple[str, float, str], list[float | None]] = {}
    for one in cuts:
        groups.setdefault((one.scheme, one.loss, one.kind), []).append(one.outage_ms)
    for (scheme, loss, kind), outages in groups.items():
        seen = sorted(one for one in outages if one is not None)
        cells = [f"{seen[len(seen) // 2]:.0f}", f"{seen[-1]:.0f}"] if len(seen) == len(outages) else ["", "not over"]
        lines.append(f"| {scheme} | {loss:g} | {kind} | {len(outages)} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """The overlay at low and high loss, and its peers. Raises LabError."""
    if not frr.available():
        raise LabError(frr.MISSING)
    repeat = settings.repeat or 10
    plan = [(scheme, LOW_LOSS) for scheme in schemes(repeat)]
    plan.append((Scheme(OVERLAY, 1.5, 1.0, dict.fromkeys(SILENT, repeat)), HIGH_LOSS))
    cuts: list[Cut] = []
    broken, flows = 0, 0
    for number, (scheme, loss) in enumerate(plan):

        def tell(what: str, share: float = number / len(plan)) -> None:
            report(what, share)

        chance = random.Random(settings.seed * 100 + number)  # noqa: S311 - when and where to cut, no secret
        with temporary_lab(ways(topology.load("two-path"), loss), settings.seed * 100 + number) as lab:
            found, ended = run_scheme(lab, scheme, loss, chance, tell)
        cuts += found
        if scheme.name == OVERLAY:
            broken += ended
            flows += CONNECTIONS
    return Outcome(list(evaluate(cuts, broken, flows, LOW_LOSS)), table(cuts), [asdict(one) for one in cuts])


EXPERIMENT = Experiment(
    "failover", "How long nothing arrives when a path is cut: the overlay beside OSPF, with and without BFD.", run
)
