"""`flow-moves`: whether flows keep their path while it is good, and how fast they leave it when it is not.

`two-path` through the overlay, whose two paths are within 10 % of each other, every wide-area link losing a little.
1,000 flows while a path is cut silently, or while a node on it answers probes and forwards nothing; 100 flows of a
class while the path that most of them take loses 5 % in each direction, in one of them, or gets 50 ms slower; and ten
minutes in which nothing happens (Bavier et al., Increasing TCP Throughput with an Enhanced Internet Control Plane,
section III: only the flows of what failed move, in tens of milliseconds and without computing anything anew).
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chart_lab import numbered_datagrams, topology
from chart_lab.errors import LabError
from chart_lab.experiments import agents, overlay_nodes
from chart_lab.experiments.failover import OWNED, Connections, begin, wide_area
from chart_lab.experiments.failover_judge import SAMPLES_FOR_P99
from chart_lab.experiments.framework import (
    Experiment,
    Figure,
    Outcome,
    Report,
    Settings,
    dimensions,
    quantile,
    temporary_lab,
)
from chart_lab.experiments.overlay_nodes import told
from chart_lab.network import Lab
from chart_lab.topology import Direction, Impairment, Topology

OWN, PEER = "ingress", "egress"
# One way; the round-trip times of the paths are 20 and 22 ms.
NORTH_MS, SOUTH_MS = 10.0, 11.0
LOSS = 0.001
PATHS = 3
FLOWS, PACKETS_PER_S, PAYLOAD_OCTETS = 1000, 15.0, 100
FEW_FLOWS, FEW_PER_S, FEW_OCTETS = 100, 10.0, 600
CLASSES: Mapping[str, int] = {"data": 0, "voice": 46 << 2}
CUTS: Mapping[str, Direction] = {"both": "both", "forward": "forward"}
DEAF = "deaf"
SLOWER_MS, BROWN_LOSS = 50.0, 0.05
# What a path does from now on, and in which direction.
BROWNOUTS: Mapping[str, tuple[Direction, bool]] = {
    "loss": ("both", True),
    "slower": ("both", False),
    "loss-forward": ("forward", True),
}
# Classic BPF: packets of which 16 bits at octet 48 are 0x0800 are dropped. That is the inner EtherType, behind IPv4,
# UDP, VXLAN and two addresses; probes between neighbours have another.
DROP_INNER_IPV4 = "4,40 0 0 48,21 0 1 2048,6 0 0 2,6 0 0 4294967295"
HOLD_S = 3.0
# Flows that deliver nothing in this time after a cut are broken.
BROKEN_AFTER_S = 1.0
BROWN_HOLD_S = 8.0
LOOK_S = 0.02
RATE_WINDOW_S = 0.2
# Of what a path carried before: flows are gone. Probes are less.
GONE = 0.1
CALM_S = 600.0
WARM_UP_S = 10.0
BACK_TIMEOUT_S = 90.0
FIRST_PORT, PORT = 20000, 7001
TOOL = [sys.executable, "-m", "chart_lab.many_flows"]
MOVED_GOAL_MS, BROWN_GOAL_S = 150, 2


@dataclass(frozen=True)
class Cut:
    """One cut: milliseconds until each flow that lost something delivered again, and flows that did not."""

    kind: str
    link: str
    moved_ms: list[float]
    broken: int


@dataclass(frozen=True)
class Brownout:
    """Seconds until flows had left a path; None: they did not."""

    traffic_class: str
    kind: str
    path: str
    moved_s: float | None


@dataclass
class Found:
    """Everything that was seen."""

    cuts: list[Cut] = field(default_factory=list)
    brownouts: list[Brownout] = field(default_factory=list)
    broken_connections: int = 0
    connections: int = 0
    changes: int = 0
    calm_flows: int = 0
    calm_s: float = 0.0


def network(base: Topology) -> Topology:
    """`two-path` with paths that are nearly alike."""
    return wide_area(base, {"loss": LOSS, "delay_ms": NORTH_MS}, {"loss": LOSS, "delay_ms": SOUTH_MS})


def paths_to(lab: Lab, node: str, owner: str) -> list[dict[str, Any]]:
    """The paths of a node to another, as its agent reports them: the northern one first, its colour is the lesser."""
    return sorted(
        (path for path in told(lab, node)["paths"] if path["owner"] == owner),
        key=lambda one: one["colour"],
    )


def await_good(lab: Lab) -> None:
    """Returns when both ends know both paths as alive and left by nobody. Raises LabError."""
    deadline = time.monotonic() + BACK_TIMEOUT_S
    while True:
        seen = [*paths_to(lab, OWN, PEER), *paths_to(lab, PEER, OWN)]
        if len(seen) == 4 and all(path["alive"] and not path["left_by"] for path in seen):
            return
        if time.monotonic() > deadline:
            raise LabError(f"the paths are not good again within {BACK_TIMEOUT_S:g} s")
        time.sleep(0.2)


def busier(lab: Lab) -> str:
    """The middle node of the path that takes more of the flows."""
    before = [path["forwarded_packets"] for path in paths_to(lab, OWN, PEER)]
    time.sleep(0.5)
    after = [path["forwarded_packets"] for path in paths_to(lab, OWN, PEER)]
    north, south = (b - a for a, b in zip(before, after, strict=True))
    return "north" if north >= south else "south"


@contextlib.contextmanager
def flows(lab: Lab, number: int, packets_per_s: float, payload: int, traffic_class: int) -> Iterator[Path]:
    """Flows from one end to the other while the block runs; where their arrivals stand."""
    file = lab.node_directory(PEER) / "arrivals"
    own, peer = lab.address(OWN), lab.address(PEER)
    with ExitStack() as stack:
        for node, words in (
            (PEER, ["hear", peer, PORT, file]),
            (OWN, ["send", own, FIRST_PORT, peer, PORT, number, f"{packets_per_s:g}", payload, traffic_class]),
        ):
            begin(lab, stack, node, [*TOOL, *map(str, words)])
        yield file


def moved_ms(arrivals: Sequence[tuple[int, float]], cut_s: float, until_s: float, spacing_s: float) -> list[float]:
    """Of every flow that lost something right after a cut: until its first datagram that arrived again was sent,
    milliseconds. ``arrivals``: flow and time of sending, seconds. Flows that never come back are not in it.

    A flow lost something when two datagrams that arrived lie further apart than half a spacing more than one.
    """
    last: dict[int, float] = {}
    first: dict[int, float] = {}
    for flow, sent_s in arrivals:
        if sent_s < cut_s:
            last[flow] = max(sent_s, last.get(flow, sent_s))
        elif sent_s < until_s:
            first[flow] = min(sent_s, first.get(flow, sent_s))
    return [
        (first[flow] - cut_s) * 1e3 for flow in first if flow in last and first[flow] - last[flow] > 1.5 * spacing_s
    ]


def broken(arrivals: Sequence[tuple[int, float]], flow_count: int, from_s: float, until_s: float) -> int:
    """How many flows delivered nothing in a time."""
    return flow_count - len({flow for flow, sent_s in arrivals if from_s <= sent_s < until_s})


@contextlib.contextmanager
def deaf(lab: Lab, node: str) -> Iterator[None]:
    """A node that answers its neighbours' probes and forwards no packet of the overlay, while the block runs."""
    interfaces = [f"to-{OWN}", f"to-{PEER}"]
    for interface in interfaces:
        lab.exec(node, ["tc", "qdisc", "add", "dev", interface, "clsact"])
    # Both in one command: flows leave within tens of milliseconds when one direction is deaf.
    filters = "\n".join(f'filter add dev {one} egress bpf da bytecode "{DROP_INNER_IPV4}"' for one in interfaces)
    lab.exec(node, ["sh", "-c", f"printf '%s\n' '{filters}' | tc -batch -"])
    try:
        yield
    finally:
        for interface in interfaces:
            lab.exec(node, ["tc", "qdisc", "del", "dev", interface, "clsact"])


def cut_once(lab: Lab, kind: str, chance: random.Random) -> tuple[str, float]:
    """One cut of the busier path, mended after HOLD_S; what was cut, and when."""
    middle = busier(lab)
    if kind == DEAF:
        with deaf(lab, middle):
            at_s = time.time()
            time.sleep(HOLD_S)
        return middle, at_s
    link = chance.choice((f"{OWN}-{middle}", f"{middle}-{PEER}"))
    at_s = time.time()
    lab.outage(link, HOLD_S, CUTS[kind])
    time.sleep(HOLD_S + 0.05)
    return link, at_s


def run_cuts(lab: Lab, repeat: int, chance: random.Random, found: Found, report: Callable[[str], None]) -> None:
    """All cuts, with 1,000 flows."""
    with ExitStack() as stack:
        connections = Connections(lab, stack)
        file = stack.enter_context(flows(lab, FLOWS, PACKETS_PER_S, PAYLOAD_OCTETS, 0))
        time.sleep(WARM_UP_S)
        kinds = [kind for kind in (*CUTS, DEAF) for _ in range(repeat)]
        chance.shuffle(kinds)
        happened = []
        for number, kind in enumerate(kinds):
            report(f"cut {number + 1} of {len(kinds)}: {kind}")
            await_good(lab)
            time.sleep(1.0 + chance.random() * 0.2)
            happened.append((kind, *cut_once(lab, kind, chance)))
        time.sleep(1.0)
        found.broken_connections += connections.broken()
        found.connections += connections.number
        arrivals = list(numbered_datagrams.read(file))
    for kind, link, at_s in happened:
        near = [one for one in arrivals if at_s - 1.0 < one[1] < at_s + HOLD_S]
        found.cuts.append(
            Cut(
                kind,
                link,
                moved_ms(near, at_s, at_s + HOLD_S, 1 / PACKETS_PER_S),
                broken(near, FLOWS, at_s + BROKEN_AFTER_S, at_s + HOLD_S),
            )
        )


def carried_bytes(lab: Lab, link: str) -> int:
    """What a link carried towards the far end so far."""
    counted: dict[str, Any] = lab.ground_truth(link)["forward"]["carried"]
    return int(counted["bytes"])


def left_s(samples: Sequence[tuple[float, int]], before_bps: float) -> float | None:
    """Seconds until a path carries no more than GONE of what it did, for good; None: it does to the end. ``samples``:
    seconds since the change, octets so far.
    """
    last = 0.0
    for place, (at_s, octets) in enumerate(samples):
        earlier = next((one for one in samples[:place] if at_s - one[0] <= RATE_WINDOW_S), None)
        if earlier is not None and (octets - earlier[1]) * 8 > GONE * before_bps * (at_s - earlier[0]):
            # In the window before, flows still came: at its beginning at the latest.
            last = at_s
    return None if not samples or last >= samples[-1][0] - RATE_WINDOW_S else last


def brown_out(lab: Lab, traffic_class: str, kind: str) -> Brownout:
    """One brownout of the path that most flows take, mended afterwards."""
    middle = busier(lab)
    link, direction, lossy = f"{OWN}-{middle}", *BROWNOUTS[kind]
    usual_ms = NORTH_MS if middle == "north" else SOUTH_MS
    start, began_s = carried_bytes(lab, link), time.monotonic()
    time.sleep(2.0)
    before_bps = (carried_bytes(lab, link) - start) * 8 / (time.monotonic() - began_s)
    worse = Impairment(loss=BROWN_LOSS) if lossy else Impairment(delay_ms=usual_ms + SLOWER_MS)
    samples: list[tuple[float, int]] = []
    at_s = time.monotonic()
    lab.impair(link, worse, direction)
    while (now_s := time.monotonic() - at_s) < BROWN_HOLD_S:
        samples.append((now_s, carried_bytes(lab, link)))
        time.sleep(LOOK_S)
    lab.impair(link, Impairment(loss=LOSS, delay_ms=usual_ms), direction)
    return Brownout(traffic_class, kind, middle, left_s(samples, before_bps))


def run_brownouts(lab: Lab, repeat: int, found: Found, report: Callable[[str], None]) -> None:
    """Every kind for every class."""
    for name, traffic_class in CLASSES.items():
        with flows(lab, FEW_FLOWS, FEW_PER_S, FEW_OCTETS, traffic_class):
            time.sleep(WARM_UP_S)
            for kind in BROWNOUTS:
                for number in range(repeat):
                    report(f"{name}, {kind}: {number + 1} of {repeat}")
                    await_good(lab)
                    found.brownouts.append(brown_out(lab, name, kind))


def run_calm(lab: Lab, duration_s: float, found: Found, report: Callable[[str], None]) -> None:
    """Nothing happens; flows of each class half of the time."""

    def counted() -> int:
        ends = [told(lab, node) for node in (OWN, PEER)]
        return sum(end["flows_moved"] + end["flows_failed_over"] for end in ends)

    for name, traffic_class in CLASSES.items():
        await_good(lab)
        with flows(lab, FEW_FLOWS, FEW_PER_S, FEW_OCTETS, traffic_class):
            time.sleep(WARM_UP_S)
            before = counted()
            report(f"{name}: {duration_s / len(CLASSES):g} s without a change")
            time.sleep(duration_s / len(CLASSES))
            found.changes += counted() - before
            found.calm_flows += FEW_FLOWS
    found.calm_s = duration_s


def _worst(values: Sequence[float]) -> float | None:
    """The 99th percentile, the greatest of fewer than a hundred; None without values."""
    if not values:
        return None
    return max(values) if len(values) < SAMPLES_FOR_P99 else quantile(values, 0.99)


def _slowest(brownouts: Sequence[Brownout]) -> float | None:
    """None where one was not left, or there is none."""
    times = [one.moved_s for one in brownouts if one.moved_s is not None]
    return max(times) if times and len(times) == len(brownouts) else None


def evaluate(found: Found) -> Iterator[Figure]:
    """The figures of the experiment."""
    every = [value for cut in found.cuts for value in cut.moved_ms]
    yield Figure("moved_ms", _worst(every), "ms", f"<= {MOVED_GOAL_MS}")
    yield Figure("moved_flows", len(every), "flows")
    yield Figure("broken_flows", sum(cut.broken for cut in found.cuts) + found.broken_connections, "flows", "<= 0")
    yield Figure("broken_flows_tried", FLOWS * len(found.cuts) + found.connections, "flows")
    for kind in (*CUTS, DEAF):
        these = [value for cut in found.cuts if cut.kind == kind for value in cut.moved_ms]
        yield Figure("moved_ms" + dimensions(kind=kind), _worst(these), "ms")
    goal = f"<= {BROWN_GOAL_S}"
    both_ways = [one for one in found.brownouts if BROWNOUTS[one.kind][0] == "both"]
    one_way = [one for one in found.brownouts if one not in both_ways]
    yield Figure("brownout_moved_s", _slowest(both_ways), "s", goal)
    yield Figure("brownout_moved_s" + dimensions(direction="one"), _slowest(one_way), "s", goal)
    for name in CLASSES:
        for kind in BROWNOUTS:
            brownouts = [one for one in found.brownouts if (one.traffic_class, one.kind) == (name, kind)]
            yield Figure("brownout_moved_s" + dimensions(traffic=name, kind=kind), _slowest(brownouts), "s")
    yield Figure("brownouts", len(found.brownouts), "brownouts")
    yield Figure("changes", found.changes, "moves", "<= 0")
    yield Figure("changes_tried", found.calm_flows * found.calm_s / len(CLASSES) / 3600, "flow hours")


def table(found: Found) -> str:
    """Markdown: one line per cut and per brownout."""
    lines = [
        "# Flows that move",
        "",
        "| cut | what | flows that lost something | p99 ms | broken |",
        "| --- " * 5 + "|",
    ]
    for cut in found.cuts:
        worst = _worst(cut.moved_ms)
        shown = "" if worst is None else f"{worst:.0f}"
        lines.append(f"| {cut.kind} | {cut.link} | {len(cut.moved_ms)} | {shown} | {cut.broken} |")
    lines += ["", "| class | brownout | path | left after s |", "| --- " * 4 + "|"]
    for one in found.brownouts:
        shown = "not" if one.moved_s is None else f"{one.moved_s:.2f}"
        lines.append(f"| {one.traffic_class} | {one.kind} | {one.path} | {shown} |")
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """Cuts, brownouts, and calm; ``duration_s``: of the calm. Raises LabError."""
    chance = random.Random(settings.seed)  # noqa: S311 - when and where to cut, no secret
    repeat = settings.repeat or 5
    found = Found()
    with temporary_lab(network(topology.load("two-path")), settings.seed) as lab:
        files = overlay_nodes.write(lab, OWNED, choices=PATHS)
        with agents.running(lab, {node: ["--overlay-file", str(path)] for node, path in files.items()}):
            overlay_nodes.await_alive(lab, OWNED)
            run_cuts(lab, repeat, chance, found, lambda what: report(what, 0.1))
            run_brownouts(lab, repeat, found, lambda what: report(what, 0.3))
            run_calm(lab, settings.duration_s or CALM_S, found, lambda what: report(what, 0.7))
    return Outcome(list(evaluate(found)), table(found), asdict(found))


EXPERIMENT = Experiment(
    "flow-moves", "Whether flows keep a good path of the overlay, and how fast they leave a bad one.", run
)
