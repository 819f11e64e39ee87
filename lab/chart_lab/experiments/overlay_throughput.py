"""`overlay-throughput`: what three hops through the overlay cost a bulk transfer.

Four overlay nodes in a row between two hosts. On links of 100 Mb/s: goodput beside what the headers leave (Bavier et
al., Increasing TCP Throughput with an Enhanced Internet Control Plane, section V: 72 of 94 Mb/s through an overlay of
user processes). On bare veth pairs: goodput beside the kernel's plain routing over the same links, in turns.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from chart_lab import topology
from chart_lab.errors import NoisyMachineError
from chart_lab.experiments import agents, noise, overlay_nodes
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, interleaved, temporary_lab
from chart_lab.experiments.tunnel_throughput import client, goodput, iperf_server
from chart_lab.network import Lab
from chart_lab.topology import Topology, all_ends, link_ends, routes

SOURCE, DESTINATION = "source", "destination"
OWNED: Mapping[str, Sequence[str]] = {"ingress": [SOURCE], "left": [], "right": [], "egress": [DESTINATION]}
OVERLAY, ROUTED = "overlay", "routed"
DURATION_S = 8.0
REPEAT = 3
# Octets of a full packet on a link; of IPv4 and TCP with timestamps; and what VXLAN puts before it.
PACKET_OCTETS, HEADER_OCTETS, VXLAN_OCTETS = 1500, 52, 50
CEILING_GOAL, ROUTING_GOAL = 0.97, 0.6
PAPER_SHARE = 72 / 94


@dataclass(frozen=True)
class Run:
    """One transfer: over which links ("emulated" or "veth"), through what, bits of payload per second."""

    links: str
    way: str
    goodput_bps: float
    complaint: str | None = None


def ceiling_bps(rate_bps: float, way: str) -> float:
    """What of a link's rate, counted with IP headers, is left for payload."""
    encapsulation = VXLAN_OCTETS if way == OVERLAY else 0
    return rate_bps * (PACKET_OCTETS - HEADER_OCTETS - encapsulation) / PACKET_OCTETS


def join_by_veth(lab: Lab, wanted: Topology) -> None:
    """The links of a topology as veth pairs, with the addresses and routes that a lab gives them."""
    for link in wanted.links:
        left, right = link_ends(wanted, link)
        peer = ["peer", "name", right.interface, "netns", lab.namespace(right.node)]
        lab.exec(left.node, ["ip", "link", "add", left.interface, "type", "veth", *peer])
    for _, end in all_ends(wanted):
        lab.exec(end.node, ["ip", "address", "add", str(end.address), "dev", end.interface])
        lab.exec(end.node, ["ip", "link", "set", end.interface, "up"])
    for node in wanted.nodes:
        for one in routes(wanted, node.name):
            words = ["ip", "route", "add", str(one.destination), "via", str(one.gateway), "src", str(one.source)]
            lab.exec(node.name, words)


@contextlib.contextmanager
def through(lab: Lab, way: str, wanted: Topology) -> Iterator[None]:
    """The overlay for the length of the block, or nothing."""
    if way == ROUTED:
        yield
        return
    files = overlay_nodes.write(lab, OWNED, wanted)
    with agents.running(lab, {node: ["--overlay-file", str(path)] for node, path in files.items()}):
        overlay_nodes.await_alive(lab, OWNED)
        yield


def transfer(lab: Lab, links: str, way: str, wanted: Topology, duration_s: float) -> Run:
    """One bulk transfer from host to host."""
    with through(lab, way, wanted), iperf_server(lab, lab.address(DESTINATION), DESTINATION):
        before = noise.cpu_times(lab)
        sender = client(lab, lab.address(DESTINATION), duration_s, ["--congestion", "cubic"], SOURCE)
        goodput_bps = goodput(sender)
        after = noise.cpu_times(lab)
    elapsed_s = after.at_s - before.at_s
    stolen = (after.steal_s - before.steal_s) / elapsed_s
    complaint = f"{stolen:.2f} processors were stolen" if stolen > noise.STEAL_LIMIT_CORES else None
    return Run(links, way, goodput_bps, complaint)


def figures(runs: Sequence[Run], rate_bps: float) -> list[Figure]:
    """Medians, and the shares of the experiment."""

    def median(links: str, way: str) -> float:
        return statistics.median(one.goodput_bps for one in runs if (one.links, one.way) == (links, way))

    emulated, routed = median("emulated", OVERLAY), median("emulated", ROUTED)
    bare, bare_routed = median("veth", OVERLAY), median("veth", ROUTED)
    return [
        Figure(
            "share_of_ceiling",
            emulated / ceiling_bps(rate_bps, OVERLAY),
            "ratio",
            f">= {CEILING_GOAL}",
            routed / ceiling_bps(rate_bps, ROUTED),
        ),
        Figure("share_of_plain", emulated / routed, "ratio", None, PAPER_SHARE),
        Figure("share_of_routing", bare / bare_routed, "ratio", f">= {ROUTING_GOAL}"),
        Figure("goodput_mbps", emulated / 1e6, "Mb/s", None, routed / 1e6),
        Figure("veth_goodput_mbps", bare / 1e6, "Mb/s", None, bare_routed / 1e6),
    ]


def table(runs: Sequence[Run]) -> str:
    """Markdown: one line per transfer."""
    lines = ["# Bulk transfers over three hops", "", "| links | way | goodput Mb/s |", "| --- | --- | --- |"]
    lines += [f"| {one.links} | {one.way} | {one.goodput_bps / 1e6:.1f} |" for one in runs]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """Both kinds of links, both ways, in turns. Raises LabError."""
    chain = topology.load("overlay-chain")
    rate_mbit = (settings.rate_mbit or (chain.links[0].rate_mbit or 0,))[0]
    chain = chain.model_copy(
        update={"links": [link.model_copy(update={"rate_mbit": rate_mbit}) for link in chain.links]}
    )
    duration_s, repeat = settings.duration_s or DURATION_S, settings.repeat or REPEAT
    runs: list[Run] = []
    for links in ("emulated", "veth"):
        built = chain if links == "emulated" else chain.model_copy(update={"links": []})
        with temporary_lab(built, settings.seed) as lab:
            if links == "veth":
                join_by_veth(lab, chain)
            for number, way in interleaved((OVERLAY, ROUTED), repeat):
                report(f"{way} over {links} links, {number + 1} of {repeat}", len(runs) / (4 * repeat))
                runs.append(transfer(lab, links, way, chain, duration_s))
                time.sleep(0.5)
    disturbed = [one.complaint for one in runs if one.complaint]
    if disturbed and settings.judge_noise:
        raise NoisyMachineError(disturbed[0])
    return Outcome(figures(runs, rate_mbit * 1e6), table(runs), [asdict(one) for one in runs])


EXPERIMENT = Experiment(
    "overlay-throughput", "What three hops through the overlay cost a bulk transfer, beside plain routing.", run
)
