"""Who gives way to a request of higher rank: the lowest first, of one rank the latest first, and nobody whose rate is
not needed. Background gives way before any foreground, and only by as much as is wanted. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chart.reservations.decisions.admission import Ask, Granted, Refused, admit, free_bps
from chart.reservations.decisions.ledger import Ledger, LinkCommitment
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.reservation import Reservation


@dataclass(frozen=True, slots=True)
class Loser:
    """A request that gives way, and what it keeps."""

    reservation: Reservation
    keeps_bps: int


@dataclass(frozen=True, slots=True)
class Preemption:
    """How a request is granted at the cost of others."""

    granted: Granted
    losers: tuple[Loser, ...]


def order(holders: Iterable[Reservation]) -> list[Reservation]:
    """In the order in which they lose."""
    return sorted(holders, key=lambda one: (one.rank, -one.created_at_us, one.id))


def eligible(ask: Ask, holders: Iterable[Reservation]) -> list[Reservation]:
    """Those of a lower rank that hold something while the request lasts, in the order in which they lose."""
    return order(
        one
        for one in holders
        if one.live and one.rank < ask.rank and any(_overlaps(ask, held) for held in one.commitments)
    )


def plan(network: Network, ledger: Ledger, holders: Sequence[Reservation], ask: Ask, now_us: int) -> Preemption | None:
    """How the request can be granted in full at the cost of lower ranks; None when it cannot. The ledger is as before
    when this returns.
    """
    losing = eligible(ask, holders)
    if not losing:
        return None
    for one in losing:
        ledger.remove(one.commitments, now_us)
    decision = admit(network, ledger, dataclasses.replace(ask, minimum_bps=0))
    for one in losing:
        ledger.add(_future(one, now_us))
    if isinstance(decision, Refused):
        return None
    taken = _take(ledger, losing, decision.links, ask, now_us)
    keeps = _give_back(ledger, taken, decision.links, ask, now_us)
    for one in taken:
        ledger.remove([dataclasses.replace(held, committed_bps=keeps[one.id]) for held in one.commitments], now_us)
        ledger.add(_future(one, now_us))
    losers = tuple(Loser(one, keeps[one.id]) for one in taken if keeps[one.id] < one.committed_bps)
    return Preemption(dataclasses.replace(decision, committed_bps=ask.wanted_bps), losers)


def _take(
    ledger: Ledger, losing: Sequence[Reservation], links: Sequence[NetworkLink], ask: Ask, now_us: int
) -> list[Reservation]:
    """Take from one after the other until the request fits; the ledger is then without them."""
    taken = []
    for one in losing:
        short = {
            link.id for link in links if free_bps(link, ledger, ask.start_us, ask.end_us, ask.kind) < ask.wanted_bps
        }
        if not short:
            break
        if any(held.link_id in short and _overlaps(ask, held) for held in one.commitments):
            ledger.remove(one.commitments, now_us)
            taken.append(one)
    return taken


def _give_back(
    ledger: Ledger, taken: Sequence[Reservation], links: Sequence[NetworkLink], ask: Ask, now_us: int
) -> dict[str, int]:
    """What each keeps, the highest and earliest first: everything or nothing, of background a part."""
    keeps = {}
    for one in reversed(taken):
        shared = {held.link_id for held in one.commitments if _overlaps(ask, held)}
        spare = [
            free_bps(link, ledger, ask.start_us, ask.end_us, held.kind) - ask.wanted_bps
            for link in links
            if link.id in shared
            for held in one.commitments
            if held.link_id == link.id
        ]
        rate = max(0, min([one.committed_bps, *spare]))
        if rate < one.committed_bps and (not one.background or rate < max(one.specification.minimum_bps, 1000)):
            rate = 0
        keeps[one.id] = rate
        ledger.add(dataclasses.replace(held, committed_bps=rate) for held in _future(one, now_us))
    return keeps


def _future(one: Reservation, now_us: int) -> list[LinkCommitment]:
    """What `Ledger.remove` took out."""
    return [held for held in one.commitments if held.end_us > now_us]


def _overlaps(ask: Ask, held: LinkCommitment) -> bool:
    # Whole seconds, as profiles count.
    return held.start_us < ask.end_us + 1_000_000 and held.end_us + 1_000_000 > ask.start_us
