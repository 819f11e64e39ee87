"""What was released and may still be applied somewhere, and who waits for it. Pure.

An agent that is cut off applies the last grant it got until the grant's validity is over by its own clock. So a rate
that is released, pre-empted, lowered or moved *drains* on its links: until every node that had the grant reported that
it is gone, or until the validity and the greatest difference of two clocks are over. Admission does not count what
drains, since it will be free soon; but a rate only comes into force where commitments and what drains fit together,
and until then its grant goes out with the rate that the request had before (nothing, for a new one).

Why that is enough: of all rates that are applied on a link at some instant, look at the one that came into force last.
All the others were committed or draining when it was admitted. Either both fitted together then, or it waited until
what drained then was over, and what was committed then fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from chart.reservations.decisions import room
from chart.reservations.decisions.admission import Granted
from chart.reservations.decisions.confirmations import waiting_words
from chart.reservations.decisions.ledger import Drain, Kind, Ledger, LinkCommitment
from chart.reservations.decisions.lifecycle import due_at_us
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.profile import US
from chart.reservations.decisions.reservation import Draining, Outcome, Reservation, Timing


def settle(
    network: Network,
    ledger: Ledger,
    outcomes: Sequence[Outcome],
    before: Mapping[str, Reservation],
    now_us: int,
    timing: Timing,
) -> tuple[Outcome, ...]:
    """The outcomes of one decision with what drains by them and what has to wait. `before`: requests as they were
    before the decision; the ledger's commitments are as they are after it.
    """
    latest = dict(before)
    found: list[Outcome] = []
    for outcome in outcomes:
        one = outcome.reservation
        after = _let_go(ledger, latest.get(one.id), one, now_us, timing)
        latest[one.id] = after
        found.append(outcome if after is one else dataclasses.replace(outcome, reservation=after))
    last = {outcome.reservation.id: place for place, outcome in enumerate(found)}
    for place, outcome in enumerate(found):
        one = outcome.reservation
        superseded = last[one.id] != place
        found[place] = _enter(network, ledger, before.get(one.id), outcome, now_us, timing, superseded=superseded)
    return tuple(found)


def wait_until_us(
    network: Network,
    ledger: Ledger,
    rates: Iterable[tuple[str, int]],
    now_us: int,
    clock_error_us: int,
    without: str = "",
) -> int:
    """Until when something drains that rates, by link, have to wait for, besides what is in the ledger; 0: they fit
    now. What ended less than the clocks' difference ago is in use still. `without`: a request whose own earlier rates
    do not matter.
    """
    until_us = 0
    for link_id, rate_bps in rates:
        link = network.links.get(link_id)
        committed_bps = ledger.peak_bps(link_id, now_us - clock_error_us, now_us + US)
        draining = ledger.drains(link_id, now_us, without)
        in_use_bps = committed_bps + rate_bps + sum(one.rate_bps for one in draining)
        if in_use_bps > (link.admissible_bps if link is not None else 0):
            until_us = max(until_us, now_us + clock_error_us, *(one.until_us for one in draining))
    return until_us


def may_enter(network: Network, ledger: Ledger, one: Reservation, now_us: int, timing: Timing) -> bool:
    """Whether a request that waits fits now."""
    links = [(held.link_id, 0) for held in _firm(one)]
    return not wait_until_us(network, ledger, links, now_us, timing.clock_error_us)


def preview_until_us(
    network: Network, ledger: Ledger, granted: Granted, held: Reservation | None, now_us: int, timing: Timing
) -> int:
    """Until when a request would wait that is granted now; 0: not at all. `held` is the request that it replaces,
    whose commitments are not in the ledger any more.
    """
    if granted.kind != Kind.FIRM:
        return 0
    before = physical_bps(held, now_us) if held is not None else {}
    waits = held is not None and held.waits_until_us > now_us
    raised = any(granted.committed_bps > before.get(link_id, 0) for link_id in granted.link_ids)
    in_force = (
        held is not None and held.active and not held.waits_until_us and set(granted.link_ids) <= set(held.link_ids)
    )
    if not raised and not waits and in_force and held is not None and granted.granted_bps <= held.granted_bps:
        return 0
    most = before if raised or waits else {}
    rates = [(link_id, max(granted.committed_bps, most.get(link_id, 0))) for link_id in granted.link_ids]
    own = held.id if held is not None else ""
    return wait_until_us(network, ledger, rates, now_us, timing.clock_error_us, own)


def physical_bps(one: Reservation, now_us: int) -> dict[str, int]:
    """The most that nodes may apply for a request on each link, bit/s."""
    found = {part.link_id: part.rate_bps for part in one.draining.parts if part.until_us > now_us}
    if one.active and one.generation:
        for held in _firm(one):
            if held.end_us > now_us:
                found[held.link_id] = found.get(held.link_id, 0) + held.committed_bps
    return found


def _firm(one: Reservation) -> list[LinkCommitment]:
    return [held for held in one.commitments if held.kind == Kind.FIRM]


def _let_go(ledger: Ledger, before: Reservation | None, after: Reservation, now_us: int, timing: Timing) -> Reservation:
    """The request with what drains of it: on each link what may be applied beyond what is committed there now."""
    if before is None:
        return after
    physical = physical_bps(before, now_us) | room.applied(before, now_us)
    if not physical:
        return after.replaced(draining=Draining()) if after.draining.parts else after
    keeps = {held.link_id: held.committed_bps for held in _firm(after)} | room.kept(after)
    earlier = {part.link_id: part for part in before.draining.parts}
    until_us = before.grant_valid_until_us + timing.clock_error_us
    parts: list[Drain] = []
    lowered = False
    for link_id, most_bps in physical.items():
        left_bps = most_bps - keeps.get(link_id, 0)
        old = earlier.get(link_id)
        if left_bps > (old.rate_bps if old is not None else 0):
            lowered = True
            ends_us = max(until_us, old.until_us if old is not None else 0)
            parts.append(Drain(link_id, left_bps, ends_us, before.generation))
        elif left_bps > 0 and old is not None:
            parts.append(old if left_bps == old.rate_bps else dataclasses.replace(old, rate_bps=left_bps))
    parts = [part for part in parts if part.until_us > now_us]
    now_draining = {part.link_id: part for part in parts}
    for link_id in physical:
        # What is as before may be on a link that is not locked.
        if now_draining.get(link_id) is not earlier.get(link_id):
            ledger.drain(link_id, after.id, now_draining.get(link_id))
    nodes = before.draining.nodes
    if lowered:
        nodes = tuple(dict.fromkeys((*nodes, *before.confirming_nodes)))
    draining = Draining(nodes, tuple(parts)) if parts else Draining()
    return after if draining == after.draining else after.replaced(draining=draining)


def _enter(
    network: Network,
    ledger: Ledger,
    before: Reservation | None,
    outcome: Outcome,
    now_us: int,
    timing: Timing,
    *,
    superseded: bool,
) -> Outcome:
    """The outcome with its rate put off, when it does not fit yet beside what drains. `superseded`: another outcome of
    the decision changes the request again.
    """
    after = outcome.reservation
    firm = _firm(after)
    again = before is not None and before.content_generation == after.content_generation
    if outcome.grant != "put" or again:
        return outcome
    waited_us = before.waits_until_us if before is not None else 0
    physical = physical_bps(before, now_us) if before is not None else {}
    raised = any(held.committed_bps > physical.get(held.link_id, 0) for held in firm)
    told_bps = _told_bps(before, after)
    until_us = 0
    if firm and told_bps < after.granted_bps:
        waits = waited_us > now_us
        # What drains of itself was in force before, or it waited then: only in the second case it waits now for others.
        own = "" if raised or waits else after.id
        links = [(held.link_id, 0) for held in firm]
        until_us = wait_until_us(network, ledger, links, now_us, timing.clock_error_us, own)
        if superseded and (raised or waits):
            until_us = max(until_us, now_us + timing.clock_error_us)
        if until_us and waits and not raised:
            until_us = waited_us
    if not until_us and not after.waits_until_us:
        return outcome
    changed = after.replaced(waits_until_us=until_us, in_force_bps=told_bps if until_us else 0)
    if until_us:
        changed = changed.replaced(reason="; ".join(filter(None, (after.service_reason, waiting_words(changed)))))
    changed = changed.replaced(due_at_us=due_at_us(changed, timing))
    return dataclasses.replace(outcome, reservation=changed)


def _told_bps(before: Reservation | None, after: Reservation) -> int:
    """What nodes may go on applying while a change waits: what they were told, where the path goes over no other
    link.
    """
    if before is None or not before.active or not set(after.link_ids) <= set(before.link_ids):
        return 0
    return min(before.in_force_bps if before.waits_until_us else before.granted_bps, after.granted_bps)
