"""Admission: which path a request takes, whether its guaranteed rate fits on every link of it, and if not, what
would.

Per link and instant the committed guaranteed rates stay at or below share x capacity (default 0.8), over the whole
interval [start, end) of a request, never only at its ends (Foster et al., GARA; design: allocation, admission).
The path has the fewest hops and, among those, the greatest free rate: CHART does not route, so a detour that
packets will not take is not offered. Pure functions: preview and commit call the same `admit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from chart.common.units import format_bps, rfc3339
from chart.reservations.network import Network, NetworkLink

# End of an interval that is open.
FOREVER_US = (1 << 63) - 1
# Smallest rate on the wire (TIA-1039 rate field): 1 kbit/s.
SMALLEST_RATE_BPS = 1_000


@dataclass(frozen=True, slots=True)
class Commitment:
    """A rate committed on one link over [start_us, end_us)."""

    rate_bps: int
    start_us: int
    end_us: int


# Commitments by link id; may leave out those that do not overlap the request.
Commitments = Mapping[str, Sequence[Commitment]]


@dataclass(frozen=True, slots=True)
class Ask:
    """What admission has to decide. guaranteed_bps 0 asks for the available rate alone."""

    source_node: str
    destination_node: str
    guaranteed_bps: int
    minimum_bps: int
    start_us: int
    end_us: int = FOREVER_US


@dataclass(frozen=True, slots=True)
class Granted:
    """It fits."""

    granted_bps: int
    links: tuple[NetworkLink, ...]
    bottleneck: NetworkLink
    # The greatest guaranteed rate that this path could have given.
    ceiling_bps: int

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


def peak_bps(commitments: Iterable[Commitment], start_us: int, end_us: int) -> int:
    """The greatest sum of committed rates at any instant of [start_us, end_us)."""
    changes: list[tuple[int, int]] = []
    for one in commitments:
        if one.start_us < end_us and one.end_us > start_us:
            changes.append((max(one.start_us, start_us), one.rate_bps))
            changes.append((min(one.end_us, end_us), -one.rate_bps))
    # At one instant ends come before starts: intervals are half open.
    changes.sort()
    total = peak = 0
    for _, change in changes:
        total += change
        peak = max(peak, total)
    return peak


def free_bps(link: NetworkLink, commitments: Commitments, start_us: int, end_us: int) -> int:
    """What may still be committed on a link over the whole interval; 0 when it is over-committed already."""
    return max(0, link.admissible_bps - peak_bps(commitments.get(link.id, ()), start_us, end_us))


def shortest_path_links(network: Network, source: str, destination: str) -> dict[str, list[NetworkLink]]:
    """The links of all fewest-hop paths, by sending node, in the order of distance; empty without a path."""
    distance = {destination: 0}
    incoming: dict[str, list[NetworkLink]] = {}
    for link in network.links.values():
        if link.capacity_bps > 0:
            incoming.setdefault(link.to_node, []).append(link)
    frontier = [destination]
    while frontier and source not in distance:
        reached = []
        for node in frontier:
            for link in incoming.get(node, ()):
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
    choices = shortest_path_links(network, ask.source_node, ask.destination_node)
    return sorted(link.id for links in choices.values() for link in links)


def widest_shortest_path(
    network: Network, source: str, destination: str, width_bps: Callable[[NetworkLink], int]
) -> tuple[NetworkLink, ...]:
    """Of the fewest-hop paths the one whose narrowest link is widest; ties go to the smaller link ids. Empty: no
    path.
    """
    choices = shortest_path_links(network, source, destination)
    best: dict[str, tuple[int, tuple[NetworkLink, ...]]] = {destination: (FOREVER_US, ())}
    for node in reversed(list(choices)):
        options = []
        for link in choices[node]:
            width, rest = best[link.to_node]
            options.append((-min(width, width_bps(link)), link.id, (link, *rest)))
        narrowest, _, path = min(options)[0:3]
        best[node] = (-narrowest, path)
    return best[source][1] if source in best else ()


def admit(network: Network, commitments: Commitments, ask: Ask) -> Granted | Refused:
    """Decide a request. The same for preview and commit."""
    path = widest_shortest_path(
        network,
        ask.source_node,
        ask.destination_node,
        lambda link: free_bps(link, commitments, ask.start_us, ask.end_us),
    )
    if not path:
        return Refused(
            "no-path",
            f"there is no path of links from {ask.source_node} to {ask.destination_node}",
            "destination",
            suggestions=("state the links between them (PUT /v1/links/{id}), both directions",),
        )
    free = {link.id: free_bps(link, commitments, ask.start_us, ask.end_us) for link in path}
    bottleneck = min(path, key=lambda link: free[link.id])
    ceiling = free[bottleneck.id]
    if ceiling >= ask.guaranteed_bps:
        return Granted(ask.guaranteed_bps, path, bottleneck, ceiling)
    if ask.minimum_bps and ceiling >= max(ask.minimum_bps, SMALLEST_RATE_BPS):
        return Granted(ceiling, path, bottleneck, ceiling)
    return _refuse(path, commitments, ask, bottleneck, ceiling)


def next_start_us(path: Sequence[NetworkLink], commitments: Commitments, ask: Ask, rate_bps: int) -> int | None:
    """The earliest start after the asked one at which the rate fits for as long as was asked; None: none is known.

    Free rate only grows where a commitment ends, so only those moments need looking at.
    """
    length_us = None if ask.end_us == FOREVER_US else ask.end_us - ask.start_us
    ends = {
        one.end_us for link in path for one in commitments.get(link.id, ()) if ask.start_us < one.end_us < FOREVER_US
    }
    for start_us in sorted(ends):
        end_us = FOREVER_US if length_us is None else start_us + length_us
        if all(free_bps(link, commitments, start_us, end_us) >= rate_bps for link in path):
            return start_us
    return None


def _refuse(
    path: Sequence[NetworkLink], commitments: Commitments, ask: Ask, bottleneck: NetworkLink, ceiling: int
) -> Refused:
    wanted = ask.minimum_bps or ask.guaranteed_bps
    suggestions = []
    if ceiling >= SMALLEST_RATE_BPS:
        suggestions.append(f"ask for a guaranteed rate of at most {ceiling} bit/s ({format_bps(ceiling)})")
        suggestions.append(f"set minimum_bps to {ceiling} or less to take what fits")
    start_us = next_start_us(path, commitments, ask, wanted)
    if start_us is not None:
        suggestions.append(f"start at {rfc3339(start_us)}, when it fits")
    suggestions.append('ask for service "available": no guarantee, the fair rate of the path')
    return Refused(
        "insufficient-capacity",
        f"link {bottleneck.id} can still commit {format_bps(ceiling)} of the {format_bps(bottleneck.admissible_bps)}"
        f" it may commit, {format_bps(wanted)} were asked for",
        "minimum_bps" if ask.minimum_bps else "guaranteed_bps",
        bottleneck.id,
        SMALLEST_RATE_BPS if ceiling >= SMALLEST_RATE_BPS else 0,
        ceiling if ceiling >= SMALLEST_RATE_BPS else 0,
        tuple(suggestions),
    )
