"""What is committed on every link: the profiles of firm and of oversubscribable rates, by link.

Firm are guaranteed rates and the leases that in-band requests draw on; soft are maximum rates, which may be
oversubscribed by a configured factor. Pure; the repository fills a ledger from its rows, a simulation keeps a complete
one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from chart.reservations.decisions.profile import LinkProfile, seconds


class Kind(IntEnum):
    """What a commitment counts against."""

    # share x capacity.
    FIRM = 0
    # factor x share x capacity, together with the firm ones.
    SOFT = 1
    # Of a node, not of a link (`room`): grants, and their selectors beyond the first of each.
    GRANTS = 2
    SELECTORS = 3


@dataclass(frozen=True, slots=True)
class LinkCommitment:
    """A rate committed on one link over [start_us, end_us). What began before it was made starts at 0: the past costs
    nothing, and a profile that starts at 0 is smaller.
    """

    link_id: str
    committed_bps: int
    start_us: int
    end_us: int
    kind: Kind = Kind.FIRM


@dataclass(frozen=True, slots=True)
class Drain:
    """A rate of a request that is committed on a link no more and may still be applied until a moment, by whoever knows
    of no later generation of its grant than this one.
    """

    link_id: str
    rate_bps: int
    until_us: int
    generation: int


# A link and a kind.
Track = tuple[str, Kind]


@dataclass
class Ledger:
    """Profiles by link and kind. `complete`: a link without a profile has nothing committed on it."""

    complete: bool = True
    tracks: dict[Track, LinkProfile] = field(default_factory=dict)
    # Tracks that `add` and `remove` changed since somebody cleared this.
    touched: set[Track] = field(default_factory=set)
    # What drains on each link, by request, and links where that changed since somebody cleared this.
    draining: dict[str, dict[str, Drain]] = field(default_factory=dict)
    drain_touched: set[str] = field(default_factory=set)

    def track(self, link_id: str, kind: Kind = Kind.FIRM) -> LinkProfile:
        """One profile."""
        found = self.tracks.get((link_id, kind))
        if found is None:
            found = self.tracks[link_id, kind] = LinkProfile(complete=self.complete)
        return found

    def peak_bps(self, link_id: str, start_us: int, end_us: int, kind: Kind = Kind.FIRM) -> int:
        """The greatest sum of committed rates at any instant of [start_us, end_us), to whole seconds outwards."""
        return self.track(link_id, kind).peak_bps(*seconds(start_us, end_us))

    def add(self, commitments: Iterable[LinkCommitment]) -> None:
        """Commit."""
        for one in commitments:
            self.touched.add((one.link_id, one.kind))
            self.track(one.link_id, one.kind).add(*seconds(one.start_us, one.end_us), one.committed_bps)

    def remove(self, commitments: Iterable[LinkCommitment], now_us: int) -> None:
        """Remove exactly what `add` committed; what ended before now needs no change, nobody asks for the past."""
        for one in commitments:
            if one.end_us > now_us:
                self.touched.add((one.link_id, one.kind))
                self.track(one.link_id, one.kind).add(*seconds(one.start_us, one.end_us), -one.committed_bps)

    def drains(self, link_id: str, now_us: int, without: str = "") -> list[Drain]:
        """What drains on a link at a moment, of other requests than one."""
        found = self.draining.get(link_id)
        return [one for name, one in found.items() if one.until_us > now_us and name != without] if found else []

    def drain(self, link_id: str, request_id: str, part: Drain | None) -> None:
        """Set what drains of a request on a link; None: nothing."""
        found = self.draining.setdefault(link_id, {})
        if part is None and request_id not in found:
            return
        self.drain_touched.add(link_id)
        if part is None:
            del found[request_id]
        else:
            found[request_id] = part

    def drained(self, request_id: str, part: Drain) -> None:
        """It is over; a later one of the same request and link goes on."""
        found = self.draining.get(part.link_id, {}).get(request_id)
        if found is not None and found.generation <= part.generation:
            self.drain(part.link_id, request_id, None)
