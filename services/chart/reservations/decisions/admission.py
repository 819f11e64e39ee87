"""Admission: which path a request takes, whether its guaranteed rate fits on every link of it, and if not, what
would.

Per link and instant the committed guaranteed rates stay at or below share x capacity (default 0.8), over the whole
interval [start, end) of a request, never only at its ends (Foster et al., GARA; design: allocation, admission).
CHART does not route: the path is the one that packets take, as far as nodes report it (`routing`), with every link
that equal-cost paths may lead over. Where no node reports, it has the fewest hops and, among those, the greatest free
rate: a detour that packets will not take is not offered. Pure functions: preview and commit call the same `admit`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from chart.common.units import format_bps, rfc3339
from chart.reservations.decisions import room, routing
from chart.reservations.decisions.ledger import Drain, Kind
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.windows import FOREVER_US, Commitment, Window, free_windows, peak_bps

# Smallest rate on the wire (TIA-1039 rate field): 1 kbit/s.
SMALLEST_RATE_BPS = 1_000

# Commitments by link id; may leave out those that do not overlap the request.
Commitments = Mapping[str, Sequence[Commitment]]


class Load(Protocol):
    """What is committed: a `Ledger`, or a list of commitments by link."""

    def peak_bps(self, link_id: str, start_us: int, end_us: int, kind: Kind = Kind.FIRM) -> int:
        """The greatest sum of committed rates at any instant of [start_us, end_us)."""
        ...

    def drains(self, link_id: str, now_us: int, without: str = "") -> list[Drain]:
        """What was released and may still be in use at a moment, of other requests than one."""
        ...


@dataclass(frozen=True, slots=True)
class ListedLoad:
    """Firm commitments, listed."""

    commitments: Commitments

    def peak_bps(self, link_id: str, start_us: int, end_us: int, kind: Kind = Kind.FIRM) -> int:
        """Highest sum of firm commitments at any instant of [start_us, end_us), bit/s; 0 for other kinds."""
        return peak_bps(self.commitments.get(link_id, ()), start_us, end_us) if kind == Kind.FIRM else 0

    def drains(self, link_id: str, now_us: int, without: str = "") -> list[Drain]:
        """Nothing: drains are not listed."""
        return []


@dataclass(frozen=True, slots=True)
class Ask:
    """What admission has to decide. `wanted_bps` is to be committed on every link: the guaranteed rate, of a
    maximum-rate request the maximum (`kind` is SOFT), 0 when the available rate alone is asked for.
    """

    source_node: str
    destination_node: str
    wanted_bps: int
    minimum_bps: int
    start_us: int
    end_us: int = FOREVER_US
    kind: Kind = Kind.FIRM
    # Pre-emption: takes from those of a lower rank. 0: background, 1 + priority: foreground.
    rank: int = 1
    # Nodes and links that the path must not use.
    avoid: frozenset[str] = frozenset()
    # The path is this one and no other (change in service).
    path: tuple[str, ...] = ()
    # The path is this one if it still is a path and the rate fits on it (re-admission).
    prefer: tuple[str, ...] = ()
    # The addresses of the destination that packets go to, CIDR; none: all that it has.
    towards: tuple[str, ...] = ()
    # Nodes that were seen to send its packets elsewhere than they report, and by which links.
    observed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Selectors that a node needs for it, and what the request holds at nodes already.
    selectors: int = 1
    own: room.Own | None = None

    @property
    def commits(self) -> bool:
        """Whether anything is to be committed."""
        return self.wanted_bps > 0

    @property
    def least_bps(self) -> int:
        """The smallest rate that would be granted."""
        return self.minimum_bps or self.wanted_bps

    def filled_by(self, granted: Granted) -> bool:
        """Whether a grant is all that was asked for."""
        return granted.committed_bps >= self.wanted_bps


@dataclass(frozen=True, slots=True)
class Granted:
    """It fits."""

    # What is committed on every link of the path.
    committed_bps: int
    links: tuple[NetworkLink, ...]
    bottleneck: NetworkLink
    # The greatest guaranteed rate that this path could have given.
    ceiling_bps: int
    kind: Kind = Kind.FIRM

    @property
    def granted_bps(self) -> int:
        """What of it is guaranteed: nothing of a maximum rate."""
        return self.committed_bps if self.kind == Kind.FIRM else 0

    @property
    def link_ids(self) -> tuple[str, ...]:
        """The path."""
        return tuple(link.id for link in self.links)


@dataclass(frozen=True, slots=True)
class Refused:
    """It does not, and why; what would."""

    code: str
    detail: str
    field: str
    bottleneck_link_id: str = ""
    floor_bps: int = 0
    ceiling_bps: int = 0
    suggestions: tuple[str, ...] = ()
    # The path that was looked at.
    link_ids: tuple[str, ...] = ()


def as_load(load: Load | Commitments) -> Load:
    """A list of commitments by link as a load."""
    return ListedLoad(load) if isinstance(load, Mapping) else load


def free_bps(link: NetworkLink, load: Load | Commitments, start_us: int, end_us: int, kind: Kind = Kind.FIRM) -> int:
    """Free rate of a link over the whole interval, bit/s; 0 when it is over-committed."""
    committed = as_load(load)
    firm = committed.peak_bps(link.id, start_us, end_us)
    soft = committed.peak_bps(link.id, start_us, end_us, Kind.SOFT)
    both = link.oversubscribable_bps - firm - soft
    return max(0, both if kind == Kind.SOFT else min(link.admissible_bps - firm, both))


def shortest_path_links(network: Network, source: str, destination: str) -> dict[str, list[NetworkLink]]:
    """The links of all fewest-hop paths, by sending node, in the order of distance; empty without a path."""
    known = network.shortest.get((source, destination))
    if known is None:
        known = network.shortest[source, destination] = _shortest_path_links(network, source, destination)
    return known


def _shortest_path_links(network: Network, source: str, destination: str) -> dict[str, list[NetworkLink]]:
    distance = {destination: 0}
    frontier = [destination]
    while frontier and source not in distance:
        reached = []
        for node in frontier:
            for link in network.incoming.get(node, ()):
                if link.from_node not in distance:
                    distance[link.from_node] = distance[node] + 1
                    reached.append(link.from_node)
        frontier = reached
    if source not in distance:
        return {}
    found: dict[str, list[NetworkLink]] = {}
    level = [source]
    while level and level != [destination]:
        following: list[str] = []
        for node in level:
            found[node] = [
                link
                for link in network.outgoing.get(node, ())
                if link.capacity_bps > 0 and distance.get(link.to_node, -1) == distance[node] - 1
            ]
            following += [link.to_node for link in found[node] if link.to_node not in following]
        level = following
    return found


def candidate_link_ids(network: Network, ask: Ask) -> list[str]:
    """Ids of the links that `admit` may look at, sorted: what a caller has to lock and read."""
    ends = ask.source_node, ask.destination_node
    shortest = network.candidates.get(ends)
    if shortest is None:
        choices = shortest_path_links(network, *ends)
        shortest = network.candidates[ends] = sorted({link.id for links in choices.values() for link in links})
    crossed: set[str] = set()

    def crossing(node: str) -> Sequence[NetworkLink]:
        choices = shortest_path_links(network, node, ask.destination_node)
        crossed.update(link.id for links in choices.values() for link in links)
        return choices.get(node, ())

    followed = routed(network, ask, crossing)
    if followed is not None:
        others = {one for route in steered(network, ask, followed, crossing) for one in route.looked_at}
        return sorted({*followed.looked_at, *others, *crossed, *(shortest if crossed else ()), *ask.prefer})
    if not ask.path and not ask.prefer:
        return list(shortest)
    return sorted({*shortest, *ask.path, *ask.prefer})


def tracks_of(network: Network, link_ids: Iterable[str]) -> list[str]:
    """What stands for the nodes that send on links, each once: what a caller has to lock and read besides these."""
    return sorted({room.track_of(network.links[one].from_node) for one in link_ids if one in network.links})


def routed(network: Network, ask: Ask, crossing: routing.Crossing) -> routing.Route | None:
    """The links that packets take, as far as nodes report it; None: nobody does, or the path is fixed."""
    if ask.path or not (network.routes or ask.observed):
        return None
    return routing.route(network, ask.source_node, ask.destination_node, ask.towards, crossing, dict(ask.observed))


def steered(network: Network, ask: Ask, followed: routing.Route, crossing: routing.Crossing) -> list[routing.Route]:
    """The routes besides that one that the request's packets can be steered by."""
    if not network.steering:
        return []
    ends = ask.source_node, ask.destination_node
    return routing.steered_routes(network, followed, *ends, ask.towards, crossing, dict(ask.observed))


def best_route(routes: Sequence[routing.Route], ask: Ask, width_bps: Callable[[NetworkLink], int]) -> routing.Route:
    """Of several routes that packets can take the one that a request has, if its rate fits; else the first on which it
    fits, as they stand; else the widest. What is to be avoided has a negative width.
    """
    widths = {route.link_ids: min(map(width_bps, route.links), default=-1) for route in routes}
    fitting = [route for route in routes if not route.fault and widths[route.link_ids] >= max(ask.wanted_bps, 0)]
    for route in fitting:
        if set(route.link_ids) == set(ask.prefer):
            return route
    if fitting:
        return fitting[0]
    return max((route for route in routes if not route.fault), key=lambda one: widths[one.link_ids], default=routes[0])


def widest_shortest_path(
    network: Network, source: str, destination: str, width_bps: Callable[[NetworkLink], int]
) -> tuple[NetworkLink, ...]:
    """Of the fewest-hop paths the one whose narrowest link is widest; ties go to the smaller link ids. Empty: no
    path. A link of negative width is not used.
    """
    choices = shortest_path_links(network, source, destination)
    if choices and all(len(links) == 1 for links in choices.values()):
        path = tuple(links[0] for links in choices.values())
        return path if all(width_bps(link) >= 0 for link in path) else ()
    best: dict[str, tuple[int, tuple[NetworkLink, ...]]] = {destination: (FOREVER_US, ())}
    for node in reversed(list(choices)):
        options = []
        for link in choices[node]:
            if link.to_node in best and (link_width := width_bps(link)) >= 0:
                width, rest = best[link.to_node]
                options.append((-min(width, link_width), link.id, (link, *rest)))
        if options:
            narrowest, _, path = min(options)[0:3]
            best[node] = (-narrowest, path)
    return best[source][1] if source in best else ()


def admit(network: Network, load: Load | Commitments, ask: Ask) -> Granted | Refused:
    """Decide a request. The same for preview and commit.

    When `load` is a list of commitments, a refusal also suggests the next start that fits; with a ledger the caller
    adds that with `with_windows`, from commitments that it reads for the purpose.
    """
    committed = as_load(load)
    free: dict[str, int] = {}

    def width_bps(link: NetworkLink) -> int:
        if link.id in ask.avoid or link.from_node in ask.avoid or link.to_node in ask.avoid:
            return -1
        known = free.get(link.id)
        if known is None:
            # Whoever commits nothing reads nothing of what is committed: the load of these links may not be known.
            load_of_links = committed if ask.commits else ListedLoad({})
            known = free[link.id] = free_bps(link, load_of_links, ask.start_us, ask.end_us, ask.kind)
        return known

    def crossing(node: str) -> Sequence[NetworkLink]:
        choices = shortest_path_links(network, node, ask.destination_node).get(node, ())
        kept = [link for link in choices if link.id in ask.prefer]
        widest = widest_shortest_path(network, node, ask.destination_node, width_bps)
        # What is to be avoided, where there is nothing else, is found out when the whole way is known.
        return kept[:1] or widest[:1] or choices[:1]

    path: tuple[NetworkLink, ...] = ()
    followed = routed(network, ask, crossing)
    if followed is not None:
        followed = best_route((followed, *steered(network, ask, followed, crossing)), ask, width_bps)
        against = _against_routes(followed, ask)
        if against is not None:
            return against
        path = followed.links
    for wanted in filter(None, () if path else (ask.path, ask.prefer)):
        path = _path_of(network, wanted)
        if path and (ask.path or min(width_bps(link) for link in path) >= ask.wanted_bps):
            break
        path = ()
    if not path and not ask.path:
        path = widest_shortest_path(network, ask.source_node, ask.destination_node, width_bps)
    if not path:
        return _no_path(network, ask)
    bottleneck = min(path, key=width_bps)
    ceiling = width_bps(bottleneck)
    full = _without_room(network, committed, ask, path)
    if full is not None:
        return full
    if ceiling >= ask.wanted_bps:
        return Granted(ask.wanted_bps, path, bottleneck, ceiling, ask.kind)
    if ask.minimum_bps and ceiling >= max(ask.minimum_bps, SMALLEST_RATE_BPS):
        return Granted(ceiling, path, bottleneck, ceiling, ask.kind)
    refused = _refuse(path, ask, bottleneck, ceiling)
    return with_windows(refused, path, load, ask) if isinstance(load, Mapping) else refused


def with_windows(refused: Refused, path: Sequence[NetworkLink], commitments: Commitments, ask: Ask) -> Refused:
    """The refusal, with the next start at which the request would fit among its suggestions."""
    start_us = next_start_us(path, commitments, ask, ask.least_bps)
    if start_us is None:
        return refused
    words = f"start at {rfc3339(start_us)}, when the rate is free"
    return dataclasses.replace(refused, suggestions=(*refused.suggestions[:-1], words, refused.suggestions[-1]))


def next_start_us(path: Sequence[NetworkLink], commitments: Commitments, ask: Ask, rate_bps: int) -> int | None:
    """The earliest start after the asked one at which the rate fits for as long as was asked; None: none is known."""
    later = (one.start_us for one in windows(path, commitments, ask, rate_bps, 2) if one.start_us > ask.start_us)
    return next(later, None)


def windows(path: Sequence[NetworkLink], commitments: Commitments, ask: Ask, rate_bps: int, most: int) -> list[Window]:
    """The next times, from the asked start on, in which a rate fits on a path for as long as was asked."""
    length_us = FOREVER_US if ask.end_us == FOREVER_US else ask.end_us - ask.start_us
    steps = [(commitments.get(link.id, ()), link.admissible_bps) for link in path]
    return free_windows(steps, ask.start_us, length_us, rate_bps, most)


def _path_of(network: Network, link_ids: Sequence[str]) -> tuple[NetworkLink, ...]:
    """The links of a path; empty when one of them is gone or has no capacity."""
    found = tuple(network.links[one] for one in link_ids if one in network.links)
    return found if len(found) == len(link_ids) and all(link.capacity_bps > 0 for link in found) else ()


def _against_routes(followed: routing.Route, ask: Ask) -> Refused | None:
    """Why packets do not take a path that was asked for; None: they do."""
    if followed.fault:
        words = "correct the routes of the nodes, or the registered links: CHART follows the nodes' routes"
        return Refused("no-path", followed.fault, "destination", suggestions=(words,))
    over = [link for link in followed.links if {link.id, link.from_node, link.to_node} & ask.avoid]
    if not over:
        return None
    avoided = sorted({one for link in over for one in (link.id, link.from_node, link.to_node)} & ask.avoid)
    return Refused(
        "no-path",
        f"packets from {ask.source_node} to {ask.destination_node} are routed over {', '.join(avoided)}, to be avoided,"
        " and CHART follows the nodes' routes",
        "avoid",
        suggestions=(
            f"remove {', '.join(avoided)} from avoid",
            f"change the routes of node {over[0].from_node} so that these packets do not leave by {over[0].id}",
        ),
        link_ids=followed.link_ids,
    )


def _no_path(network: Network, ask: Ask) -> Refused:
    between = f"from {ask.source_node} to {ask.destination_node}"
    if ask.path:
        return Refused("no-path", f"the path of the request {between} no longer exists", "")
    if ask.avoid and shortest_path_links(network, ask.source_node, ask.destination_node):
        return Refused(
            "no-path",
            f"every fewest-hop path {between} uses {', '.join(sorted(ask.avoid))}, to be avoided, and"
            " packets are routed on fewest-hop paths only",
            "avoid",
            suggestions=("remove from avoid what every fewest-hop path needs",),
        )
    return Refused(
        "no-path",
        f"no path of links {between}",
        "destination",
        suggestions=("register the links between them (PUT /v1/links/{id}), both directions",),
    )


def _without_room(network: Network, load: Load, ask: Ask, path: Sequence[NetworkLink]) -> Refused | None:
    """Why a node of the path cannot hold the grant; None: all can."""
    nodes = list(dict.fromkeys(link.from_node for link in path))
    lack = room.lack(network.rooms, load, nodes, ask.selectors, ask.start_us, ask.end_us, ask.own)
    if lack is None:
        return None
    at = next(link.id for link in path if link.from_node == lack.node)
    ids = tuple(link.id for link in path)
    return Refused("no-room", lack.detail, "", at, suggestions=(lack.suggestion,), link_ids=ids)


def _refuse(path: Sequence[NetworkLink], ask: Ask, bottleneck: NetworkLink, ceiling: int) -> Refused:
    wanted = ask.least_bps
    soft = ask.kind == Kind.SOFT
    bound = bottleneck.oversubscribable_bps if soft else bottleneck.admissible_bps
    field = "maximum_bps" if soft else "minimum_bps" if ask.minimum_bps else "guaranteed_bps"
    suggestions = []
    if ceiling >= SMALLEST_RATE_BPS:
        name = "maximum" if soft else "guaranteed"
        suggestions.append(f"request a {name} rate of at most {ceiling} bit/s ({format_bps(ceiling)})")
        if not soft:
            suggestions.append(f"set minimum_bps to {ceiling} or less to accept a lower rate")
    suggestions.append('request service "available": no guarantee, the available rate of the path')
    return Refused(
        "insufficient-capacity",
        f"link {bottleneck.id} has a free rate of {format_bps(ceiling)} (admission limit {format_bps(bound)}),"
        f" {format_bps(wanted)} were requested",
        field,
        bottleneck.id,
        SMALLEST_RATE_BPS if ceiling >= SMALLEST_RATE_BPS else 0,
        ceiling if ceiling >= SMALLEST_RATE_BPS else 0,
        tuple(suggestions),
        tuple(link.id for link in path),
    )
