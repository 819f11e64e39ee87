"""Questions about many pairs at once: who is closest, which server is best, over which relays. Pure.

The estimates of a metric are ordered, each with its 90 % interval; an entry whose interval reaches that of the first
may be the best in truth. Ordering nodes by estimates is what Netvigator is for (Sharma et al., Estimating Network
Proximity and Latency, CCR 36(3) 2006, section 4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from chart.inference.service import key_of
from chart.v1 import estimate_pb2

# Metrics of which more is better; of all others less is.
MORE_IS_BETTER = frozenset({"available_bandwidth_bps", "capacity_bps", "throughput_bps"})
# Metrics that add up over the hops of a relayed path; a ratio of loss combines, a bandwidth is that of the bottleneck.
_ADDED = frozenset({"rtt_us", "rtt_min_us"})
LOSS = "loss_ratio"

Told = Mapping[str, estimate_pb2.Estimate]


@dataclass(frozen=True)
class Ranked:
    """A node at its place: the value in the metric's unit, its interval, and whether it may be the best in truth."""

    node: str
    value: float
    low: float
    high: float
    method: str
    estimated_at_us: int
    may_be_best: bool = True


@dataclass(frozen=True)
class Ranking:
    """Nodes, the best first, and candidates of which nothing is known."""

    items: list[Ranked]
    unknown: list[str]


def relayed(metric: str) -> bool:
    """Whether a value over a relay follows from those of its two hops."""
    return metric in _ADDED or metric in MORE_IS_BETTER or metric == LOSS


def nodes(told: Told, node: str, metric: str, candidates: Collection[str], *, towards: bool) -> Ranking:
    """Candidates by the metric from a node to each of them; towards: from each of them to the node."""
    found, unknown = [], []
    for other in dict.fromkeys(candidates):
        if other == node:
            continue
        one = told.get(key_of(other, node, metric) if towards else key_of(node, other, metric))
        if one is None:
            unknown.append(other)
        else:
            found.append(Ranked(other, one.value, one.interval_low, one.interval_high, one.method, one.estimated_at_us))
    return Ranking(ordered(metric, found), sorted(unknown))


def relays(
    told: Told, source: str, destination: str, metric: str, candidates: Collection[str]
) -> tuple[Ranking, Ranked | None]:
    """Candidates by the metric of the path over each of them, and the path without a relay (None: unknown).

    The ends of the interval are those of both hops together. Each hop's interval holds its truth in nine of ten cases,
    so both hold theirs in at least eight of ten.
    """
    found, unknown = [], []
    for relay in dict.fromkeys(candidates):
        if relay in (source, destination):
            continue
        first, second = told.get(key_of(source, relay, metric)), told.get(key_of(relay, destination, metric))
        if first is None or second is None:
            unknown.append(relay)
            continue
        methods = sorted({first.method, second.method})
        found.append(
            Ranked(
                relay,
                _over(metric, first.value, second.value),
                _over(metric, first.interval_low, second.interval_low),
                _over(metric, first.interval_high, second.interval_high),
                "+".join(methods),
                min(first.estimated_at_us, second.estimated_at_us),
            )
        )
    one = told.get(key_of(source, destination, metric))
    direct = (
        Ranked("", one.value, one.interval_low, one.interval_high, one.method, one.estimated_at_us)
        if one is not None
        else None
    )
    return Ranking(ordered(metric, found), sorted(unknown)), direct


def _over(metric: str, first: float, second: float) -> float:
    if metric in _ADDED:
        return first + second
    if metric == LOSS:
        return 1 - (1 - min(first, 1.0)) * (1 - min(second, 1.0))
    return min(first, second)


def ordered(metric: str, found: Iterable[Ranked]) -> list[Ranked]:
    """The best first, by name among equals; marks those whose interval reaches that of the first."""
    more = metric in MORE_IS_BETTER
    entries = sorted(found, key=lambda one: (-one.value if more else one.value, one.node))
    if not entries:
        return []
    best = entries[0]

    def reaches(one: Ranked) -> bool:
        return one.high >= best.low if more else one.low <= best.high

    return [
        Ranked(one.node, one.value, one.low, one.high, one.method, one.estimated_at_us, reaches(one)) for one in entries
    ]
