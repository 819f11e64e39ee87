"""What the overlay does with packets, now or at a time of the past: routes of a node, and traces. Pure.

A trace decides at each node as the kernel's program does (docs/overlay.md): the path of the owner and colour, its next
hops in their order, the first that answers probes, back to where the packet came from only when no other is left.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from chart.v1 import archive_pb2, node_state_pb2
from chart.v1.node_state_pb2 import OverlayEventKind
from chart.v1.path_table_pb2 import OverlayLink, OverlayOwner, OverlayPath, PathTable

FlowClass = Literal["voice", "video", "data"]
CLASSES: Mapping[int, FlowClass] = {
    node_state_pb2.OVERLAY_CLASS_VOICE: "voice",
    node_state_pb2.OVERLAY_CLASS_VIDEO: "video",
    node_state_pb2.OVERLAY_CLASS_DATA: "data",
}
# Packets of the overlay live for as many of its nodes at most.
NODES_MAX = 64

Skipped = Literal["failed", "back"]
Outcome = Literal["arrives", "circles", "no-table", "no-path"]


class PathId(NamedTuple):
    """A path from a node to the owner of the destination."""

    node: str
    owner: str
    colour: int


@dataclass(frozen=True)
class PathFacts:
    """What a node found of a path. `measured`: its agent reports it now, else only what had happened is known."""

    alive: bool = True
    taken_by: tuple[FlowClass, ...] = ()
    left_by: tuple[FlowClass, ...] = ()
    rtt_ms: float | None = None
    exchange_loss: float | None = None
    load: float | None = None
    measured: bool = False


@dataclass(frozen=True)
class View:
    """The overlay at one time."""

    at_us: int
    tables: Mapping[str, PathTable]
    # Node and its link; what is not here answers probes, or nobody says otherwise.
    failed: frozenset[tuple[str, str]] = frozenset()
    paths: Mapping[PathId, PathFacts] = field(default_factory=dict)
    # Nodes that do not report: their links are taken to answer.
    silent: frozenset[str] = frozenset()

    def facts(self, path: PathId) -> PathFacts:
        """What was found of a path; of one without data that it is alive."""
        return self.paths.get(path, PathFacts())


@dataclass(frozen=True)
class Hop:
    """From a node over one of its links to the next. `skipped`: links before it in the order, and why not these."""

    node: str
    link_id: str
    next_node: str
    colour: int
    skipped: tuple[tuple[str, Skipped], ...] = ()
    # None of its next hops answers probes: the first is taken.
    all_failed: bool = False


@dataclass(frozen=True)
class Traced:
    """Where packets of one colour go."""

    colour: int
    choice: bool
    hops: tuple[Hop, ...]
    outcome: Outcome
    planned: tuple[str, ...]
    capacity_bps: int
    facts: PathFacts

    @property
    def detours(self) -> bool:
        """Whether some node takes another link than the first."""
        return any(hop.skipped for hop in self.hops)


def live_view(
    tables: Mapping[str, PathTable], states: Mapping[str, node_state_pb2.NodeState], current: Iterable[str], now_us: int
) -> View:
    """The overlay now; ``current`` names nodes whose state is not stale."""
    heard = {node for node in current if states[node].HasField("overlay")}
    failed: set[tuple[str, str]] = set()
    paths: dict[PathId, PathFacts] = {}
    for node in heard:
        overlay = states[node].overlay
        failed.update((node, link.link_id) for link in overlay.links if not link.alive)
        for path in overlay.paths:
            paths[PathId(node, path.owner, path.colour)] = PathFacts(
                alive=path.alive,
                taken_by=_classes(path.taken_by),
                left_by=_classes(path.left_by),
                # None was ever answered: nothing was measured.
                rtt_ms=path.rtt_us / 1000 if path.rtt_us else None,
                exchange_loss=path.exchange_loss if path.rtt_us else None,
                load=path.load,
                measured=True,
            )
    return View(now_us, tables, frozenset(failed), paths, frozenset(tables.keys() - heard))


def past_view(answer: archive_pb2.GetOverlayAtResponse, at_us: int) -> View:
    """The overlay at a time: path tables, and the last that had happened to each link and path."""
    started: set[str] = set()
    link_up: dict[tuple[str, str], bool] = {}
    path_up: dict[PathId, bool] = {}
    left: dict[PathId, list[FlowClass]] = {}
    for one in answer.events:
        event = one.event
        link, path = (one.node, event.link_id), PathId(one.node, event.owner, event.colour)
        match event.kind:
            case OverlayEventKind.OVERLAY_EVENT_KIND_STARTED:
                started.add(one.node)
            case OverlayEventKind.OVERLAY_EVENT_KIND_LINK_FAILED | OverlayEventKind.OVERLAY_EVENT_KIND_LINK_RETURNED:
                link_up[link] = event.kind == OverlayEventKind.OVERLAY_EVENT_KIND_LINK_RETURNED
            case OverlayEventKind.OVERLAY_EVENT_KIND_PATH_FAILED | OverlayEventKind.OVERLAY_EVENT_KIND_PATH_RETURNED:
                path_up[path] = event.kind == OverlayEventKind.OVERLAY_EVENT_KIND_PATH_RETURNED
            case OverlayEventKind.OVERLAY_EVENT_KIND_PATH_LEFT:
                left.setdefault(path, []).extend(_classes(event.flow_classes))
    failed: set[tuple[str, str]] = set()
    paths: dict[PathId, PathFacts] = {}
    for table in answer.tables:
        # Since a start that is known of, what has not answered yet fails.
        usual = table.node not in started
        ids = [(table.node, link.link_id) for link in table.links]
        failed.update(one for one in ids if not link_up.get(one, usual))
        for owner in table.owners:
            for colour in (path.colour for path in owner.paths if path.choice):
                path = PathId(table.node, owner.node, colour)
                paths[path] = PathFacts(path_up.get(path, usual), left_by=tuple(left.get(path, ())))
    return View(at_us, {table.node: table for table in answer.tables}, frozenset(failed), paths)


def _classes(numbers: Iterable[int]) -> tuple[FlowClass, ...]:
    return tuple(CLASSES[number] for number in numbers if number in CLASSES)


def owner_of(table: PathTable, destination: str) -> tuple[OverlayOwner, str] | None:
    """The owner of an address by the longest prefix, with this prefix, or a node by its name; None: nobody's."""
    try:
        address = ipaddress.ip_address(destination)
    except ValueError:
        named = [owner for owner in table.owners if owner.node == destination]
        return (named[0], "") if named else None
    best: tuple[int, OverlayOwner, str] | None = None
    for owner in table.owners:
        for prefix in owner.prefixes:
            network = ipaddress.ip_network(prefix, strict=False)
            if address in network and (best is None or network.prefixlen > best[0]):
                best = (network.prefixlen, owner, prefix)
    return (best[1], best[2]) if best else None


def trace(view: View, source: str, owner: str) -> list[Traced]:
    """Where packets that enter the overlay at a node go: by the first path, and by those that flows may choose, in the
    order of their colours; empty: its table has no path there. Other colours are of packets that enter elsewhere.
    """
    table = view.tables.get(source)
    found = next((one for one in table.owners if one.node == owner), None) if table else None
    if found is None:
        return []
    paths = sorted(found.paths, key=lambda path: path.colour)
    return [_traced(view, source, owner, path) for path in paths if path.choice or not path.colour]


def _traced(view: View, source: str, owner: str, path: OverlayPath) -> Traced:
    hops: list[Hop] = []
    node, arrived = source, ""
    outcome: Outcome = "circles"
    for _ in range(NODES_MAX):
        if node == owner:
            outcome = "arrives"
            break
        hop, link = _next_hop(view, node, owner, path.colour, arrived)
        if hop is None or link is None:
            outcome = "no-path" if node in view.tables else "no-table"
            break
        again = hop in hops
        hops.append(hop)
        if again:
            break
        node, arrived = link.neighbour, _other_end(view, link)
    facts = view.facts(PathId(source, owner, path.colour))
    return Traced(path.colour, path.choice, tuple(hops), outcome, tuple(path.link_ids), path.capacity_bps, facts)


def _next_hop(view: View, node: str, owner: str, colour: int, arrived: str) -> tuple[Hop | None, OverlayLink | None]:
    table = view.tables.get(node)
    known = next((one for one in table.owners if one.node == owner), None) if table else None
    paths = {path.colour: path for path in known.paths} if known else {}
    path = paths.get(colour) or paths.get(0)
    if table is None or path is None or not path.next_hops:
        return None, None
    links = {link.link_id: link for link in table.links}
    skipped: list[tuple[str, Skipped]] = []
    chosen = ""
    for link_id in path.next_hops:
        if link_id == arrived:
            skipped.append((link_id, "back"))
        elif (node, link_id) in view.failed:
            skipped.append((link_id, "failed"))
        else:
            chosen = link_id
            break
    all_failed = not chosen and (arrived not in path.next_hops or (node, arrived) in view.failed)
    if not chosen:
        # Back where it came from, if that answers; else the first stays.
        onward = [link_id for link_id in path.next_hops if link_id != arrived]
        chosen = arrived if not all_failed else (onward or [arrived])[0]
        skipped = [one for one in skipped if one[0] != chosen]
    link = links.get(chosen)
    if link is None:
        return None, None
    return Hop(node, chosen, link.neighbour, path.colour, tuple(skipped), all_failed), link


def _other_end(view: View, link: OverlayLink) -> str:
    """The link at the other end by which packets would come back; empty: that node's table does not have it."""
    table = view.tables.get(link.neighbour)
    for other in table.links if table else ():
        if other.local_address == link.remote_address and other.remote_address == link.local_address:
            return other.link_id
    return ""
