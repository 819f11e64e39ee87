"""Leases of free guaranteed rate to links, for requests that ask in band (design: allocation, in-band grants).

A lease is committed like any request, until its end plus the lifetime of one in-band commitment plus the greatest error
of a clock: only then nobody can use it any more. Renewed at half of its length; a smaller renewal frees nothing before
the larger one before it is over. It is cut short where a reservation that starts soon needs the rate. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from chart.common import leases
from chart.reservations.decisions.admission import SMALLEST_RATE_BPS, free_bps
from chart.reservations.decisions.ledger import Ledger, LinkCommitment
from chart.reservations.decisions.network import NetworkLink
from chart.reservations.decisions.profile import US
from chart.v1.platform_settings_pb2 import PlatformSettings

# A lease shorter than this is not worth telling.
SHORTEST_US = 2_000_000
# Of what flows draw, how much a lease is made larger than it: room for the next ones.
GROWTH = 1.5


@dataclass(frozen=True)
class LeaseRule:
    """How much is leased, for how long; microseconds."""

    # Of what may be committed on the link, while nobody draws on it, and at most.
    idle_share: float = 0.1
    greatest_share: float = 0.5
    length_us: int = 20_000_000
    # A commitment that is not renewed ends after this (idle guaranteed flows live longer, by policy).
    lifetime_us: int = 3_000_000
    clock_error_us: int = 1_000_000


def rule_of(started: LeaseRule, platform: PlatformSettings) -> LeaseRule:
    """The rule that a service was started with, with the shares that operators set; never more idle than at most."""
    idle = platform.lease_idle_share if platform.HasField("lease_idle_share") else started.idle_share
    greatest = platform.lease_greatest_share if platform.HasField("lease_greatest_share") else started.greatest_share
    return replace(started, idle_share=min(idle, greatest), greatest_share=greatest)


@dataclass(frozen=True)
class Lease:
    """What in-band requests may draw on a link. `pieces` are (rate, until when it stays committed), of this lease and
    of earlier ones that are not over; later ends have smaller rates.
    """

    link_id: str
    generation: int
    rate_bps: int
    issued_at_us: int
    valid_until_us: int
    pieces: tuple[tuple[int, int], ...]

    @property
    def commitments(self) -> tuple[LinkCommitment, ...]:
        """What it commits: at any instant the greatest rate that somebody may still use."""
        found = []
        start_us = 0
        for rate, until in self.pieces:
            if rate:
                found.append(LinkCommitment(self.link_id, rate, start_us, until))
            start_us = until
        return tuple(found)

    def usable_bps(self, now_us: int) -> int:
        """What flows may draw by this lease, bit/s; 0 when it is over."""
        return self.rate_bps if leases.is_valid(self.valid_until_us, now_us) else 0

    def draining(self, now_us: int) -> tuple[int, int]:
        """What is committed beside `usable_bps`, bit/s, and until when: of larger leases before, or of this one when it
        is over; an agent that knows of none since may still let flows draw it. (0, 0): nothing.
        """
        usable_bps = self.usable_bps(now_us)
        larger = [(rate, until) for rate, until in self.pieces if until > now_us and rate > usable_bps]
        return (larger[0][0] - usable_bps, larger[-1][1]) if larger else (0, 0)


def due(lease: Lease | None, drawn_bps: int, now_us: int) -> bool:
    """Whether a link's lease is to be looked at: none, half over, or drawn upon by more than two thirds."""
    if lease is None or not leases.is_valid(lease.valid_until_us, now_us):
        return True
    crowded = drawn_bps * GROWTH > lease.rate_bps and now_us - lease.issued_at_us > SHORTEST_US
    return crowded or leases.renewal_due(lease.issued_at_us, lease.valid_until_us, now_us)


def renew(
    link: NetworkLink, ledger: Ledger, current: Lease | None, drawn_bps: int, now_us: int, rule: LeaseRule
) -> Lease | None:
    """The link's next lease, committed in the ledger in place of the current one; None when there never was one and
    nothing is free. A rate of 0 takes the lease back.
    """
    before = current.commitments if current is not None else ()
    ledger.remove(before, now_us)
    pieces = [one for one in (current.pieces if current else ()) if one[1] > now_us]
    rate, length_us = _largest(link, ledger, drawn_bps, now_us, rule)
    if not rate and not pieces and (current is None or not current.rate_bps):
        ledger.add(one for one in before if one.end_us > now_us)
        return None
    until_us = now_us + length_us
    if rate:
        # Profiles count whole seconds: one piece ends where the next begins, and no second counts both.
        ends_us = until_us + rule.lifetime_us + rule.clock_error_us
        pieces.append((rate, -(-ends_us // US) * US))
    generation = current.generation + 1 if current is not None else 1
    lease = Lease(link.id, generation, rate, now_us, until_us, _staircase(pieces))
    ledger.add(lease.commitments)
    return lease


def _largest(link: NetworkLink, ledger: Ledger, drawn_bps: int, now_us: int, rule: LeaseRule) -> tuple[int, int]:
    """Rate and length: as long as can be with the wanted rate; else what is free for the shortest time."""
    most = int(link.admissible_bps * rule.greatest_share)
    wanted = min(most, max(int(link.admissible_bps * rule.idle_share), int(drawn_bps * GROWTH)))
    tail_us = rule.lifetime_us + rule.clock_error_us
    length_us = rule.length_us
    free = 0
    while length_us >= SHORTEST_US:
        free = _free_bps(link, ledger, now_us, length_us + tail_us, rule)
        if free >= wanted:
            return (wanted, length_us) if wanted >= SMALLEST_RATE_BPS else (0, length_us)
        length_us //= 2
    length_us = rule.length_us
    free = _free_bps(link, ledger, now_us, length_us + tail_us, rule)
    return (free, length_us) if free >= SMALLEST_RATE_BPS else (0, length_us)


def _free_bps(link: NetworkLink, ledger: Ledger, now_us: int, length_us: int, rule: LeaseRule) -> int:
    """What is free for a lease, which is in force at once: nobody uses it any more."""
    free = free_bps(link, ledger, now_us - rule.clock_error_us, now_us + length_us)
    return max(0, free - sum(one.rate_bps for one in ledger.drains(link.id, now_us)))


def _staircase(pieces: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Without the pieces that a larger one outlasts, by end."""
    kept: list[tuple[int, int]] = []
    for rate, until in sorted(pieces, key=lambda one: (-one[1], -one[0])):
        if not kept or rate > kept[-1][0]:
            kept.append((rate, until))
    return tuple(reversed(kept))
