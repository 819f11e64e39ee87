"""What `route-follow` judges: where requests are committed against where their packets were captured. Pure."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chart_lab.experiments.framework import Figure, dimensions

# Judged is from so long after a change on; packets so long before and after an answer of REST belong to it.
FROM_S = 1.0
AROUND_S = 0.15


@dataclass(frozen=True)
class Stand:
    """What REST said of one request."""

    port: int
    granted_bps: int
    links: tuple[str, ...]
    state: str
    warning: str = ""
    reason: str = ""
    # What nodes say of the grant, by node.
    nodes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One look: when (seconds since the epoch), how long after which change, and what stood. ``links`` are those where
    packets have a choice, with the rate that admission may promise there, ``leases`` what of it is leased to in-band
    requests, ``draining`` what is left of earlier leases, ``ledger`` what is committed, all leases included; ``ways``
    those that the routes of the moment lead over, per flow's port.
    """

    at_s: float
    change: str
    since_s: float
    stands: tuple[Stand, ...]
    links: Mapping[str, int]
    leases: Mapping[str, int]
    draining: Mapping[str, int]
    ledger: Mapping[str, int]
    ways: Mapping[int, frozenset[str]]


@dataclass
class Seen:
    """When packets of one flow were captured on one link, seconds since the epoch, sorted."""

    at_s: list[float]

    def around(self, at_s: float) -> bool:
        """Whether any belongs to a look at that time."""
        return bisect_left(self.at_s, at_s - AROUND_S) < bisect_right(self.at_s, at_s + AROUND_S)


Captured = Mapping[tuple[int, str], Seen]


@dataclass(frozen=True)
class Verdict:
    """One request at one look. ``off``: packets leave by a link that it is not committed on, or it is committed where
    none of them goes though its routes lead nowhere else besides.
    """

    change: str
    since_s: float
    port: int
    committed: tuple[str, ...]
    seen: tuple[str, ...]
    off: bool


def judged(sample: Sample) -> bool:
    """Whether it is late enough after its change."""
    return sample.since_s >= FROM_S + AROUND_S


def links_seen(sample: Sample, port: int, captured: Captured) -> tuple[str, ...]:
    """By which of the links with a choice packets of a flow went."""
    return tuple(link for link in sample.links if (port, link) in captured and captured[port, link].around(sample.at_s))


def verdicts(samples: Sequence[Sample], captured: Captured) -> Iterator[Verdict]:
    """Every request that holds a rate and whose packets were captured, at every look, early ones included."""
    for sample in samples:
        for stand in sample.stands:
            seen = links_seen(sample, stand.port, captured)
            if not stand.granted_bps or not seen:
                continue
            committed = tuple(link for link in stand.links if link in sample.links)
            idle = set(committed) - set(seen)
            # Of equal-cost ways every one is charged, and one flow takes one of them.
            off = bool(set(seen) - set(committed)) or (len(sample.ways[stand.port]) == 1 and bool(idle))
            yield Verdict(sample.change, sample.since_s, stand.port, committed, seen, off)


def promised(sample: Sample, captured: Captured) -> Iterator[tuple[str, int, int]]:
    """Per link with a choice the most that is promised there, and what may be: by the paths of the requests, by the
    ledger, and by the links that packets of requests with a rate were captured on. Leases of a link from before it went
    down promise nothing: they stay committed until no agent may apply them, and are told apart from what is admitted.
    """
    for link, admissible_bps in sample.links.items():
        by_path = sum(one.granted_bps for one in sample.stands if link in one.links)
        by_packets = sum(one.granted_bps for one in sample.stands if link in links_seen(sample, one.port, captured))
        leased_bps = 0 if admissible_bps else sample.leases[link] + sample.draining[link]
        yield link, max(by_path, by_packets, sample.ledger[link] - leased_bps), admissible_bps


def fits_bps(sample: Sample, size_bps: int) -> int:
    """The rate of as many requests of one size as fit where the routes lead; those of one way compete."""
    total = 0
    for way in set(sample.ways.values()):
        asking = sum(1 for one in sample.ways.values() if one == way)
        room = min(((sample.links[link] - sample.leases[link]) // size_bps for link in way), default=0)
        total += size_bps * min(asking, room)
    return total


def followed_s(samples: Sequence[Sample], found: Sequence[Verdict], change: str) -> float | None:
    """From a change until no look says otherwise than that commitments are where packets go; None: never so."""
    looks = [sample.since_s for sample in samples if sample.change == change]
    off = {one.since_s for one in found if one.change == change and one.off}
    if not looks or max(looks) in off:
        return None
    return min(since for since in looks if not off or since > max(off))


def evaluate(samples: Sequence[Sample], captured: Captured, size_bps: int) -> Iterator[Figure]:
    """The figures, all together and per change."""
    every = list(verdicts(samples, captured))
    late = [one for one in every if one.since_s >= FROM_S + AROUND_S]
    looks = [sample for sample in samples if judged(sample)]
    changes = list(dict.fromkeys(sample.change for sample in samples))
    yield Figure("commitments_off_path", sum(one.off for one in late), "requests", "<= 0")
    yield Figure("commitments_off_path_tried", len(late), "requests")
    rows = [(most, limit) for sample in looks for _, most, limit in promised(sample, captured)]
    yield Figure("overcommitted", sum(most > limit for most, limit in rows), "links", "<= 0")
    yield Figure("overcommitted_tried", len(rows), "links")
    yield Figure("admitted_share", share(looks, size_bps), "ratio", ">= 0.95")
    yield Figure("admitted_share_samples", len(looks), "samples")
    yield Figure("requests_without_packets", sum(1 for _ in unseen(looks, captured)), "requests")
    told = [one for sample in samples for one in sample.stands if one.state == "OFF_PATH"]
    yield Figure("off_path_told", len(told), "requests")
    times: list[float] = []
    for change in changes:
        own = [one for one in late if one.change == change]
        end = dimensions(change=change)
        yield Figure(f"commitments_off_path{end}", sum(one.off for one in own), "requests")
        yield Figure(f"admitted_share{end}", share([one for one in looks if one.change == change], size_bps), "ratio")
        took_s = followed_s(samples, every, change)
        yield Figure(f"followed_s{end}", took_s, "s")
        times += [took_s] if took_s is not None else []
    yield Figure("followed_s", statistics.median(times) if times else None, "s")


def unseen(samples: Sequence[Sample], captured: Captured) -> Iterator[tuple[Sample, Stand]]:
    """Requests with a rate of which no packet was captured anywhere: they cannot be judged."""
    for sample in samples:
        for stand in sample.stands:
            if stand.granted_bps and not links_seen(sample, stand.port, captured):
                yield sample, stand


def share(samples: Sequence[Sample], size_bps: int) -> float | None:
    """Granted of what fits, over several looks; more than fits counts as all. None without looks."""
    fits = [fits_bps(sample, size_bps) for sample in samples]
    if not sum(fits):
        return None
    granted = [sum(one.granted_bps for one in sample.stands) for sample in samples]
    return sum(min(own, most) for own, most in zip(granted, fits, strict=True)) / sum(fits)
