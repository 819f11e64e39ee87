"""`middleboxes`: short connections through what stands between networks, with in-band signalling on at both ends.

Between two elements is a node that knows nothing of CHART: a stateful firewall that drops what its connection tracking
calls invalid, a NAT, or a box that drops every packet with IP options. Signals may be lost there and their tags may
break (docs/signalling.md); the connections of ordinary programs may not notice. Each box sees the same requests twice,
first without CHART and then with it, over TCP and UDP, IPv4 and, where that is sensible, IPv6.

A connection is harmed when it fails or is reset, when its octets differ, or when it takes much longer than the slowest
of its kind without CHART in the same run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from chart.common.processes import end_process
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, quantile, temporary_lab
from chart_lab.experiments.signal_lab import Signals, elements, line_topology
from chart_lab.network import Lab
from chart_lab.topology import Impairment

CONNECTIONS = 10_000
CLIENT, BOX, SERVER = "client", "box", "server"
PORT = 5240
RATE_MBIT = 200.0
DELAY_MS = 1.0
# Much longer than the slowest one without CHART: a lost SYN costs a second, a lost segment 200 ms.
LATE_FACTOR, LATE_MS = 2.0, 100.0
# So many in one go of the client, so that progress is seen and nothing grows.
CHUNK = 500
CHUNK_LIMIT_S = 300.0
IPV6 = {CLIENT: "fd00::1", BOX: "fd00::2", SERVER: "fd00::3"}
TRAFFIC = [sys.executable, "-m", "chart_lab.request_traffic"]

Told = Callable[[str], None]


@dataclass(frozen=True)
class Box:
    """What stands in the middle: how it is set up, and which kinds of traffic pass it."""

    name: str
    set_up: Callable[[Lab], None]
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Asked:
    """Outcome of a number of requests of one kind."""

    times_ms: tuple[float, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """One kind of traffic through one box. ``late``: whole and right, but much later than without CHART."""

    box: str
    protocol: str
    family: int
    tried: int
    failed: int
    late: int
    slowest_without_ms: float
    slowest_with_ms: float
    median_without_ms: float
    median_with_ms: float
    failures: tuple[str, ...]

    @property
    def harmed(self) -> int:
        """Connections that were worse off with CHART."""
        return self.failed + self.late


def firewall(lab: Lab) -> None:
    """A stateful firewall: nothing invalid passes, and from the server's side only what the client began."""
    for tables in ("iptables", "ip6tables"):
        filtering = [tables, "-w", "-A", "FORWARD"]
        lab.exec(BOX, [*filtering, "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"])
        fresh = ["-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
        lab.exec(BOX, [*filtering, "-i", f"to-{SERVER}", *fresh])


def nat(lab: Lab) -> None:
    """The same firewall, and what leaves to the server has the box's address."""
    firewall(lab)
    lab.exec(BOX, ["iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-o", f"to-{SERVER}", "-j", "MASQUERADE"])


def no_options(lab: Lab) -> None:
    """No packet with IP options passes, either way, nor one with an IPv6 hop-by-hop header."""
    lab.impair(f"{BOX}-{SERVER}", Impairment(drop_options=True))


BOXES = (
    Box("firewall", firewall, (("tcp", 4), ("tcp", 6), ("udp", 4), ("udp", 6))),
    Box("nat", nat, (("tcp", 4), ("udp", 4))),
    Box("no-options", no_options, (("tcp", 4), ("tcp", 6), ("udp", 4), ("udp", 6))),
)


def add_ipv6(lab: Lab) -> None:
    """One IPv6 address per node on its lo, and routes along the row (TUN has no neighbours)."""
    ways = {
        CLIENT: {BOX: f"to-{BOX}", SERVER: f"to-{BOX}"},
        BOX: {CLIENT: f"to-{CLIENT}", SERVER: f"to-{SERVER}"},
        SERVER: {CLIENT: f"to-{BOX}", BOX: f"to-{BOX}"},
    }
    for node, routes in ways.items():
        lab.exec(node, ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.all.forwarding=1"])
        lab.exec(node, ["ip", "-6", "address", "add", f"{IPV6[node]}/128", "dev", "lo", "nodad"])
        for other, interface in routes.items():
            lab.exec(node, ["ip", "-6", "route", "add", IPV6[other], "dev", interface, "src", IPV6[node]])


@contextmanager
def serving(lab: Lab, address: str) -> Iterator[None]:
    """The server of requests on one address. Raises LabError when it does not listen."""
    process = lab.popen(SERVER, [*TRAFFIC, "serve", address, str(PORT)], stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "listening\n":
            raise LabError(f"nothing serves requests on {address}")
        yield
    finally:
        end_process(process)
        process.stdout.close()


def address_of(lab: Lab, family: int) -> str:
    """Where the server is asked."""
    return lab.address(SERVER) if family == 4 else IPV6[SERVER]


def ask(lab: Lab, protocol: str, family: int, number: int, told: Told) -> Asked:
    """So many requests of one kind. Raises LabError when the client fails."""
    address = address_of(lab, family)
    times: list[float] = []
    failures: list[str] = []
    with serving(lab, address):
        for first in range(0, number, CHUNK):
            told(f"{protocol} over IPv{family}, {first} of {number}")
            words = [*TRAFFIC, "ask", protocol, address, str(PORT), str(first), str(min(CHUNK, number - first))]
            answer: dict[str, Any] = json.loads(lab.exec(CLIENT, words, timeout_s=CHUNK_LIMIT_S).stdout)
            times += answer["times_ms"]
            failures += [f"{one['number']}: {one['why']}" for one in answer["failures"]]
    return Asked(tuple(times), tuple(failures))


def judge(box: str, protocol: str, family: int, without: Asked, with_: Asked) -> Result:
    """Beside the same without CHART. Raises LabError when that failed too: then the box harms, or the machine."""
    if without.failures:
        raise LabError(f"{box}, {protocol}, IPv{family}: fails without CHART too: {without.failures[0]}")
    slowest_ms = max(without.times_ms)
    limit_ms = LATE_FACTOR * slowest_ms + LATE_MS
    return Result(
        box=box,
        protocol=protocol,
        family=family,
        tried=len(with_.times_ms) + len(with_.failures),
        failed=len(with_.failures),
        late=sum(took > limit_ms for took in with_.times_ms),
        slowest_without_ms=slowest_ms,
        slowest_with_ms=max(with_.times_ms, default=0.0),
        median_without_ms=quantile(without.times_ms, 0.5),
        median_with_ms=quantile(with_.times_ms or (0.0,), 0.5),
        failures=with_.failures[:10],
    )


def signals_of(lab: Lab) -> Signals:
    """Both ends are elements and ask for every flow to and from the server's port, whatever its protocol."""
    asks = {
        node: [
            {"selector": {"protocol": protocol, port: PORT}, "available_bps": 10**12, "service": "available"}
            for protocol in ("tcp", "udp")
        ]
        for node, port in ((CLIENT, "destination_port"), (SERVER, "source_port"))
    }
    more = {node: [f"{address}/128"] for node, address in IPV6.items()}
    return Signals(lab.topology, elements=(CLIENT, SERVER), asks=asks, more_addresses=more)


def through(box: Box, shares: Sequence[int], seed: int, told: Told) -> tuple[list[Result], dict[str, dict[str, int]]]:
    """Every kind of traffic through one box, in a lab of its own; and what the elements counted of signals."""
    topology = line_topology((CLIENT, BOX, SERVER), rate_mbit=RATE_MBIT, delay_ms=DELAY_MS)
    with temporary_lab(topology, seed) as lab:
        add_ipv6(lab)
        box.set_up(lab)
        without = [ask(lab, *kind, number, told) for kind, number in zip(box.kinds, shares, strict=True)]
        with elements(lab, signals_of(lab)) as running:
            with_ = [
                ask(lab, *kind, number, lambda words: told(f"{words}, with CHART"))
                for kind, number in zip(box.kinds, shares, strict=True)
            ]
            counters = {node: {k: n for k, n in one.counters().items() if n} for node, one in running.items()}
    if not counters[CLIENT].get("sent"):
        raise LabError(f"{box.name}: no signal was sent, so nothing is proved")
    results = [judge(box.name, *kind, *pair) for kind, *pair in zip(box.kinds, without, with_, strict=True)]
    return results, counters


def shares_of(number: int) -> list[list[int]]:
    """How many connections each kind of each box has; together exactly so many."""
    kinds = sum(len(box.kinds) for box in BOXES)
    least, more = divmod(number, kinds)
    shares = iter([least + (place < more) for place in range(kinds)])
    return [[next(shares) for _ in box.kinds] for box in BOXES]


def evaluate(results: Sequence[Result]) -> list[Figure]:
    """The figures: all boxes together, then each; the peer of a median is that without CHART."""
    figures = [
        Figure("connections_harmed", sum(one.harmed for one in results), "count", "<= 0"),
        Figure("connections_tried", sum(one.tried for one in results), "count"),
    ]
    for box in dict.fromkeys(one.box for one in results):
        own = [one for one in results if one.box == box]
        figures.append(Figure(f"connections_harmed/box={box}", sum(one.harmed for one in own), "count", "<= 0"))
        figures.append(Figure(f"connections_tried/box={box}", sum(one.tried for one in own), "count"))
    return figures


def table(results: Sequence[Result]) -> str:
    """Markdown: one line per box and kind."""
    lines = [
        "# Connections through middleboxes",
        "",
        "| box | traffic | tried | failed | late | median without, with, ms | slowest without, with, ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.box} | {one.protocol}, IPv{one.family} | {one.tried} | {one.failed} | {one.late}"
        f" | {one.median_without_ms:.1f}, {one.median_with_ms:.1f}"
        f" | {one.slowest_without_ms:.1f}, {one.slowest_with_ms:.1f} |"
        for one in results
    ]
    return "\n".join(lines) + "\n"


def _tell(report: Report, box: str, share: float, words: str) -> None:
    report(f"{box}: {words}", share)


def run(settings: Settings, report: Report) -> Outcome:
    """Box by box."""
    results: list[Result] = []
    counters: dict[str, dict[str, dict[str, int]]] = {}
    for place, (box, shares) in enumerate(zip(BOXES, shares_of(settings.connections or CONNECTIONS), strict=True)):
        told = partial(_tell, report, box.name, place / len(BOXES))
        found, counters[box.name] = through(box, shares, settings.seed + place, told)
        results += found
    details = {"results": [asdict(one) for one in results], "signals": counters}
    return Outcome(evaluate(results), table(results), details)


EXPERIMENT = Experiment(
    "middleboxes", "Short connections through firewall, NAT and a box that drops IP options: none may be harmed.", run
)
