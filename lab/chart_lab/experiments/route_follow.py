"""`route-follow`: commitments against packets while routes change, on the platform as it is installed.

`two-path` with the southern way narrower: four guaranteed requests each way, a UDP flow under each. While they run the
kernels' routes are changed as a routing protocol or an operator would: one direction moves to the other way
(asymmetric), both do, back, equal-cost multipath, a link is cut and comes back, a rule by source sends packets against
the routes that agents can ask for. Packets are captured on both links of `egress`, one hop behind the choice of the one
direction and at the choice of the other, so nothing that an agent reports enters the figures.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from chart.common.processes import end_process
from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import installed
from chart_lab.experiments.framework import Experiment, Outcome, Report, Settings
from chart_lab.experiments.installed import Installation
from chart_lab.experiments.route_follow_judge import Captured, Sample, Seen, Stand, evaluate
from chart_lab.experiments.signal_capture import Capture
from chart_lab.network import Lab
from chart_lab.platform.laboratory import client, fetch, request_rate
from chart_lab.topology import Topology, all_ends, routes

SOURCE, INGRESS, EGRESS, DESTINATION = "source", "ingress", "egress", "destination"
WAYS = ("north", "south")
SIZE_BPS = 15_000_000
# Admission promises 80 % of a link: four requests fit on the northern way of 100 Mb/s, two on the southern.
SOUTH_MBIT = 50.0
DELAY_MS = 5.0
FORWARD, BACK = (6001, 6002, 6003, 6004), (6101, 6102, 6103, 6104)
PACKETS_PER_S = 50.0
# Seconds of every change, and between two looks at all requests.
CHANGE_S = 6.0
LOOK_S = 0.2
REPEAT = 2
TRAFFIC = [sys.executable, "-m", "chart_lab.steady_datagrams"]
DIVERTING_TABLE = "177"


def narrowed(base: Topology) -> Topology:
    """The topology with short wide-area links without loss, the southern way narrower."""
    links = []
    for link in base.links:
        changes: dict[str, Any] = {"loss": 0.0}
        if link.delay_ms:
            changes["delay_ms"] = DELAY_MS
        if "south" in link.ends:
            changes["rate_mbit"] = SOUTH_MBIT
        links.append(link.model_copy(update=changes))
    return base.model_copy(update={"links": links})


@dataclass(frozen=True)
class Change:
    """What is done to the network, and the ways that flows of either direction may take then."""

    name: str
    act: Callable[[Lab], None]
    forward: tuple[str, ...]
    back: tuple[str, ...]

    def ways(self) -> dict[int, frozenset[str]]:
        """Links with a choice that packets of each flow's port may take."""
        forward = frozenset(f"{INGRESS}:to-{one}" for one in self.forward)
        back = frozenset(f"{EGRESS}:to-{one}" for one in self.back)
        return dict.fromkeys(FORWARD, forward) | dict.fromkeys(BACK, back)


def gateway(lab: Lab, node: str, neighbour: str) -> str:
    """A neighbour's address on the link to it."""
    return str(next(end for _, end in all_ends(lab.topology) if (end.node, end.peer) == (node, neighbour)).peer_address)


def lead(lab: Lab, node: str, target: str, *ways: str) -> None:
    """A route from one node to another by one neighbour, or by several as equal-cost multipath."""
    command = ["ip", "route", "replace", f"{lab.address(target)}/32", "src", lab.address(node)]
    if len(ways) == 1:
        command += ["via", gateway(lab, node, ways[0])]
    else:
        command += [word for way in ways for word in ("nexthop", "via", gateway(lab, node, way))]
    lab.exec(node, command)


def _lead_both(lab: Lab, forward: Sequence[str], back: Sequence[str]) -> None:
    lead(lab, INGRESS, DESTINATION, *forward)
    lead(lab, EGRESS, SOURCE, *back)


def _cut(lab: Lab) -> None:
    """The link fails at both ends; the kernel of one moves what it can, and the other hears of it from its routing."""
    lab.exec(INGRESS, ["ip", "link", "set", "to-north", "down"])
    lab.exec("north", ["ip", "link", "set", "to-ingress", "down"])
    lead(lab, EGRESS, SOURCE, "south")


def _mend(lab: Lab) -> None:
    """The link and the routes that went with it come back."""
    for node, interface in ((INGRESS, "to-north"), ("north", "to-ingress")):
        lab.exec(node, ["ip", "link", "set", interface, "up"])
    for node in (INGRESS, "north"):
        for one in routes(lab.topology, node):
            words = ["ip", "route", "replace", str(one.destination), "via", str(one.gateway), "src", str(one.source)]
            lab.exec(node, words)
    _lead_both(lab, ["north"], ["north"])


def _rule(lab: Lab, action: str) -> None:
    ends = ["from", f"{lab.address(SOURCE)}/32", "to", f"{lab.address(DESTINATION)}/32"]
    lab.exec(INGRESS, ["ip", "rule", action, *ends, "lookup", DIVERTING_TABLE, "priority", DIVERTING_TABLE])


def _divert(lab: Lab) -> None:
    """A rule by source, which no question of an agent meets: packets go against the routes that it reports."""
    table = ["via", gateway(lab, INGRESS, "south"), "table", DIVERTING_TABLE]
    lab.exec(INGRESS, ["ip", "route", "replace", f"{lab.address(DESTINATION)}/32", *table])
    _rule(lab, "add")


NORTH, SOUTH = ("north",), ("south",)
CHANGES = (
    Change("calm", lambda lab: _lead_both(lab, NORTH, NORTH), NORTH, NORTH),
    Change("asymmetric", lambda lab: _lead_both(lab, SOUTH, NORTH), SOUTH, NORTH),
    Change("route-change", lambda lab: _lead_both(lab, SOUTH, SOUTH), SOUTH, SOUTH),
    Change("route-back", lambda lab: _lead_both(lab, NORTH, NORTH), NORTH, NORTH),
    Change("equal-cost", lambda lab: _lead_both(lab, WAYS, NORTH), WAYS, NORTH),
    Change("link-cut", _cut, SOUTH, SOUTH),
    Change("link-back", _mend, NORTH, NORTH),
    Change("diverted", _divert, SOUTH, NORTH),
    Change("diverted-back", lambda lab: _rule(lab, "del"), NORTH, NORTH),
)


def bodies(lab: Lab) -> Iterator[dict[str, Any]]:
    """The requests, by address: of a node's name all its addresses would count, which other routes lead to."""
    for ports, source, sink in ((FORWARD, SOURCE, DESTINATION), (BACK, DESTINATION, SOURCE)):
        for port in ports:
            yield {
                "source": lab.address(source),
                "destination": lab.address(sink),
                "protocol": "udp",
                "destination_port": port,
                "service": "guaranteed",
                "guaranteed_bps": SIZE_BPS,
            }


@contextlib.contextmanager
def traffic(lab: Lab) -> Iterator[None]:
    """A flow under every request for the length of the block. Raises LabError when one end does not begin."""
    with ExitStack() as stack:
        for own, peer, sent, heard in ((SOURCE, DESTINATION, FORWARD, BACK), (DESTINATION, SOURCE, BACK, FORWARD)):
            ports = [",".join(map(str, one)) for one in (sent, heard)]
            words = [*TRAFFIC, lab.address(own), lab.address(peer), f"{PACKETS_PER_S:g}", *ports]
            process = lab.popen(own, words, stdout=subprocess.PIPE)
            stack.callback(end_process, process)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            if "sending" not in process.stdout.readline():
                raise LabError(f"the traffic of {own} does not begin")
        yield


def look(rest: httpx.Client, change: Change, changed_s: float) -> Sample:
    """One look at all requests and at the ledger of the links with a choice."""
    links = sorted({link for one in CHANGES for ways in one.ways().values() for link in ways})
    began_s = time.time()
    listed = fetch(rest, "/v1/rate-requests", lifecycle="ACTIVE")["items"]
    at_s = (began_s + time.time()) / 2
    told = {link: fetch(rest, f"/v1/links/{link}/capacity") for link in links}
    stands = [
        Stand(
            one["request"]["destination_port"],
            one["granted_bps"],
            tuple(one["path"]),
            one["state"],
            one["warning"],
            one["reason"],
            {node["node"]: f"{node['state']} {node['reason']}".strip() for node in one["confirmations"]},
        )
        for one in listed
    ]
    return Sample(
        at_s,
        change.name,
        at_s - changed_s,
        tuple(stands),
        {link: one["admissible_bps"] for link, one in told.items()},
        {link: one["lease_bps"] for link, one in told.items()},
        {link: one["lease_draining_bps"] for link, one in told.items()},
        {link: one["steps"][0]["committed_bps"] if one["steps"] else 0 for link, one in told.items()},
        change.ways(),
    )


def _captures(lab: Lab) -> Mapping[str, Capture]:
    """By the way that it watches: everything of the flows on that link of egress, both directions."""
    ports = f"udp and portrange {FORWARD[0]}-{BACK[-1]}"
    return {way: Capture(lab, EGRESS, f"to-{way}", ports, name=f"follow-{way}") for way in WAYS}


def packets(captures: Mapping[str, Capture]) -> Captured:
    """When packets of each flow were on each link with a choice."""
    found: dict[tuple[int, str], Seen] = {}
    for way, capture in captures.items():
        for packet in capture.packets():
            port = packet.ports[1]
            node = INGRESS if port in FORWARD else EGRESS
            found.setdefault((port, f"{node}:to-{way}"), Seen([])).at_s.append(packet.at_s)
    for seen in found.values():
        seen.at_s.sort()
    return found


def rounds(lab: Lab, rest: httpx.Client, repeat: int, change_s: float, report: Report) -> list[Sample]:
    """All changes, so many times, and the looks during them."""
    samples: list[Sample] = []
    for number in range(repeat):
        for place, change in enumerate(CHANGES):
            report(f"{change.name}", (number + place / len(CHANGES)) / repeat)
            change.act(lab)
            changed_s = time.time()
            while time.time() < changed_s + change_s:
                samples.append(look(rest, change, changed_s))
                time.sleep(LOOK_S)
    return samples


def measure(
    product: Installation, seed: int, repeat: int, change_s: float, report: Report
) -> tuple[list[Sample], Captured]:
    """The looks and the captured packets of one network. Raises LabError when a request is refused at the beginning."""
    with product.network(narrowed(topology.load("two-path")), seed) as lab, ExitStack() as stack:
        # By ports: flows of one pair of nodes spread over equal-cost ways.
        for node in (INGRESS, EGRESS):
            lab.exec(node, ["sysctl", "-q", "-w", "net.ipv4.fib_multipath_hash_policy=1"])
        _lead_both(lab, NORTH, NORTH)
        captures = _captures(lab)
        for capture in captures.values():
            stack.enter_context(capture)
        stack.enter_context(traffic(lab))
        rest = stack.enter_context(client(product.settings))
        for body in bodies(lab):
            request_rate(rest, body)
        samples = rounds(lab, rest, repeat, change_s, report)
        # Captures are read once tcpdump has written what it had.
        stack.close()
        return samples, packets(captures)


def table(samples: Sequence[Sample], captured: Captured) -> str:
    """Markdown: one line per change."""
    figures = {one.name: one.value for one in evaluate(samples, captured, SIZE_BPS)}
    lines = [
        "# Commitments while routes change",
        "",
        "| change | off path | admitted of what fits | followed after, s |",
    ]
    lines.append("| --- " * 4 + "|")
    for change in dict.fromkeys(sample.change for sample in samples):
        cells = [
            figures[f"{name}/change={change}"] for name in ("commitments_off_path", "admitted_share", "followed_s")
        ]
        lines.append(f"| {change} | {' | '.join('' if one is None else format(one, '.3g') for one in cells)} |")
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """All changes on one network of the platform as it is installed. Raises LabError."""
    with installed.installation(report) as product:
        repeat, change_s = settings.repeat or REPEAT, settings.duration_s or CHANGE_S
        try:
            samples, captured = measure(product, settings.seed, repeat, change_s, report)
        except installed.FAILURES as error:
            raise LabError(str(error)) from error
    details = [{**asdict(one), "ways": {port: sorted(way) for port, way in one.ways.items()}} for one in samples]
    for record, sample in zip(details, samples, strict=True):
        record["seen"] = {
            port: sorted(link for link in sample.links if captured.get((port, link), Seen([])).around(sample.at_s))
            for port in sample.ways
        }
    return Outcome(list(evaluate(samples, captured, SIZE_BPS)), table(samples, captured), details)


EXPERIMENT = Experiment(
    "route-follow",
    "Commitments against captured packets while routes change, spread and fail (on the platform as it is installed).",
    run,
    installed=True,
)
