"""The room of nodes: each can hold so many grants, and so many selectors that these match by. Pure.

A grant needs room on every node of its path from its start to its end, with a rate or without. So room is counted over
time as rates are: the profile of a node has one for each grant, and a second one has the selectors of a grant beyond
its first. What was released and may still be held (`draining`) counts besides: an agent that is cut off gives a place
back no sooner than the grant's validity ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from chart.reservations.decisions.ledger import Drain, Kind, LinkCommitment
from chart.reservations.decisions.profile import US
from chart.v1 import flow_grant_pb2, node_state_pb2

_TRACK = "node/"
# What stands on a link's profiles and on a node's.
_OF_LINKS = (Kind.FIRM, Kind.SOFT)
_OF_NODES = (Kind.GRANTS, Kind.SELECTORS)


@dataclass(frozen=True, slots=True)
class Room:
    """What a node can hold at once. The defaults are those of agents that do not report it."""

    grants: int = 256
    selectors: int = 4096


@dataclass(frozen=True, slots=True)
class Own:
    """What the request that admission is asked about holds already, at these nodes until `end_us`."""

    request_id: str
    nodes: tuple[str, ...]
    selectors: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Lack:
    """A node without room, and the numbers."""

    node: str
    # "grants" or "selectors".
    kind: str
    wanted: int
    held: int
    total: int
    # Of what is held: released, and not given back yet.
    draining: int

    @property
    def detail(self) -> str:
        """One sentence."""
        what = "another grant" if self.kind == "grants" else f"{self.wanted} selectors of a grant"
        drains = f" ({self.draining} of them released and not yet given back)" if self.draining else ""
        holds = f"it holds {self.held} of at most {self.total} {self.kind}{drains}"
        return f"node {self.node} has no room for {what}: {holds}"

    @property
    def suggestion(self) -> str:
        """What helps."""
        if self.kind == "selectors" and self.wanted > 1:
            return "name one address of each end: every pair of a source and a destination takes a selector"
        return f"release a request whose path leaves node {self.node}, or start when one has ended"


class Load(Protocol):
    """What is held: a `Ledger`."""

    def peak_bps(self, link_id: str, start_us: int, end_us: int, kind: Kind = Kind.FIRM) -> int:
        """The greatest sum at any instant of [start_us, end_us)."""
        ...

    def drains(self, link_id: str, now_us: int, without: str = "") -> list[Drain]:
        """What drains at a moment, of other requests than one."""
        ...


class Holder(Protocol):
    """What holds room at nodes: a `Reservation`."""

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        ...

    @property
    def active(self) -> bool:
        """Whether its grant is in force."""
        ...

    @property
    def generation(self) -> int:
        """How often its grant was changed; 0: it was never published."""
        ...

    @property
    def selector(self) -> flow_grant_pb2.FlowSelector:
        """Which packets it matches."""
        ...

    @property
    def confirming_nodes(self) -> tuple[str, ...]:
        """The nodes of its path that hold its grant."""
        ...

    @property
    def created_at_us(self) -> int:
        """When it was asked for."""
        ...

    @property
    def start_us(self) -> int:
        """When it begins."""
        ...

    @property
    def end_us(self) -> int:
        """When it ends."""
        ...


def track_of(node: str) -> str:
    """What stands in place of a link's id in the profiles of a node; no link has such an id."""
    return _TRACK + node


def is_track(link_id: str) -> bool:
    """Whether an id is a node's."""
    return link_id.startswith(_TRACK)


def node_of(track: str) -> str:
    """The node that `track_of` was told."""
    return track.removeprefix(_TRACK)


def kinds_of(link_id: str) -> tuple[Kind, Kind]:
    """The profiles that a link or a node has."""
    return _OF_NODES if is_track(link_id) else _OF_LINKS


def room_of(state: node_state_pb2.NodeState) -> Room:
    """What an agent reports; of what it does not, the default."""
    told = {one.kind: one.total for one in state.room}
    return Room(told.get("grants", Room().grants), told.get("selectors", Room().selectors))


def selectors_of(selector: flow_grant_pb2.FlowSelector) -> int:
    """How many selectors nodes make of one: one for each pair of a source and a destination of one address family, at
    least one.
    """
    if not selector.source_prefixes and not selector.destination_prefixes:
        return 1
    sources = list(selector.source_prefixes) or [selector.source_prefix]
    destinations = list(selector.destination_prefixes) or [selector.destination_prefix]
    pairs = ((one, other) for one in sources for other in destinations)
    return max(1, sum(not one or not other or (":" in one) == (":" in other) for one, other in pairs))


def held_at(nodes: Iterable[str], selectors: int, start_us: int, end_us: int) -> tuple[LinkCommitment, ...]:
    """What a grant holds at nodes."""
    found = []
    for node in nodes:
        track = track_of(node)
        found.append(LinkCommitment(track, 1, start_us, end_us, Kind.GRANTS))
        if selectors > 1:
            found.append(LinkCommitment(track, selectors - 1, start_us, end_us, Kind.SELECTORS))
    return tuple(found)


def holds(one: Holder) -> tuple[LinkCommitment, ...]:
    """What a request holds at the nodes of its path while it lasts; nothing once it has ended."""
    if not one.live:
        return ()
    start_us = since_us(one.start_us, one.created_at_us)
    return held_at(one.confirming_nodes, selectors_of(one.selector), start_us, one.end_us)


def since_us(start_us: int, created_at_us: int) -> int:
    """From when on a request holds something: the past costs nothing (`LinkCommitment`)."""
    return start_us if start_us > created_at_us else 0


def applied(one: Holder, now_us: int) -> dict[str, int]:
    """The selectors of a request that nodes may hold now, by track."""
    if not one.active or not one.generation or one.end_us <= now_us:
        return {}
    return dict.fromkeys(map(track_of, one.confirming_nodes), selectors_of(one.selector))


def kept(one: Holder) -> dict[str, int]:
    """The selectors that a request goes on holding, by track."""
    return dict.fromkeys(map(track_of, one.confirming_nodes), selectors_of(one.selector)) if one.live else {}


def lack(
    rooms: Mapping[str, Room],
    load: Load,
    nodes: Sequence[str],
    selectors: int,
    start_us: int,
    end_us: int,
    own: Own | None = None,
) -> Lack | None:
    """The first node of a path that cannot hold a grant of so many selectors over [start_us, end_us); None: all can. Of
    nodes that are not in `rooms` nothing is known: no agent is there to hold anything.
    """
    for node in nodes:
        room = rooms.get(node)
        if room is None:
            continue
        mine = own is not None and node in own.nodes
        drains = load.drains(track_of(node), start_us, own.request_id if own is not None else "")
        grants = _peak(load, node, start_us, end_us, Kind.GRANTS, (1, own.end_us) if own and mine else None)
        extra = (own.selectors - 1, own.end_us) if own and mine else None
        matched = grants + _peak(load, node, start_us, end_us, Kind.SELECTORS, extra)
        grants += len(drains)
        matched += sum(one.rate_bps for one in drains)
        if grants + 1 > room.grants:
            return Lack(node, "grants", 1, grants, room.grants, len(drains))
        if matched + selectors > room.selectors:
            return Lack(node, "selectors", selectors, matched, room.selectors, sum(one.rate_bps for one in drains))
    return None


def _peak(load: Load, node: str, start_us: int, end_us: int, kind: Kind, own: tuple[int, int] | None) -> int:
    """The most that others hold at any instant of [start_us, end_us). `own`: how much of what is counted is the
    request's own, and until when.
    """
    track = track_of(node)
    if own is None:
        return load.peak_bps(track, start_us, end_us, kind)
    amount, until_us = own
    # Profiles count whole seconds.
    until_us = min(end_us, -(-until_us // US) * US)
    most = load.peak_bps(track, start_us, until_us, kind) - amount if start_us < until_us else 0
    if until_us < end_us:
        most = max(most, load.peak_bps(track, max(start_us, until_us), end_us, kind))
    return max(0, most)
