"""Decisions that touch more than one request: who is admitted, who gives way, who gets its rate back. Pure.

A `Book` is what such a decision looks at: the network, what is committed, and the requests concerned. The functions
change the book and return every request that changed, to be stored and told together. The repository fills a book from
locked rows for one batch; a simulation keeps a complete one for good.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from chart.reservations.decisions import draining, lifecycle, observed, preemption, rates, room, routing
from chart.reservations.decisions.admission import Ask, Granted, Refused, admit, candidate_link_ids
from chart.reservations.decisions.ledger import Kind, Ledger
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Outcome, Reservation, Timing, towards, wanted_bps
from chart.reservations.decisions.validation import CheckedRequest
from chart.v1.rate_request_pb2 import ServiceState


@dataclass
class Book:
    """What decisions look at. `reservations` need not hold those of no concern, but see `Decision.needs_holders`."""

    network: Network
    ledger: Ledger
    reservations: dict[str, Reservation] = field(default_factory=dict)
    # Whether `reservations` has everyone who holds anything on the links concerned.
    holders_known: bool = True

    def holders(self, link_ids: Collection[str]) -> list[Reservation]:
        """Live requests with a commitment on one of the links."""
        wanted = set(link_ids)
        return [
            one
            for one in self.reservations.values()
            if one.live and any(held.link_id in wanted for held in one.commitments)
        ]

    def take(self, outcome: Outcome, now_us: int) -> Outcome:
        """Make a change count: the ledger and the requests are as it says."""
        after = outcome.reservation
        before = self.reservations.get(after.id)
        held = before.commitments if before is not None else ()
        if held != after.commitments:
            self.ledger.remove(held, now_us)
            self.ledger.add(after.commitments)
        places = room.holds(before) if before is not None else ()
        if places != (wanted := room.holds(after)):
            self.ledger.remove(places, now_us)
            self.ledger.add(wanted)
        self.reservations[after.id] = after
        return outcome


@dataclass(frozen=True)
class Decision:
    """What became of one request: everything that changed with it, or why not."""

    outcomes: tuple[Outcome, ...] = ()
    granted: Granted | None = None
    refused: Refused | None = None
    # Those of lower rank that gave way.
    losers: tuple[str, ...] = ()
    # Nothing was decided: the book lacks the holders of these links, who might have to give way.
    needs_holders: tuple[str, ...] = ()


def decide(book: Book, ask: Ask, now_us: int) -> tuple[Granted | Refused, tuple[preemption.Loser, ...]] | None:
    """Whether a request fits, if need be at the cost of lower ranks; None: the holders have to be known to say.

    The book stays as it is: this is what a preview answers.
    """
    decision = admit(book.network, book.ledger, ask)
    if isinstance(decision, Granted) and ask.filled_by(decision):
        return decision, ()
    if ask.rank == 0 or (isinstance(decision, Refused) and decision.code != "insufficient-capacity"):
        return decision, ()
    if not book.holders_known:
        return None
    holders = book.holders(candidate_link_ids(book.network, ask))
    planned = preemption.plan(book.network, book.ledger, holders, ask, now_us)
    return (decision, ()) if planned is None else (planned.granted, planned.losers)


def create(
    book: Book, request_id: str, owner: str, checked: CheckedRequest, now_us: int, traceparent: str, timing: Timing
) -> Decision:
    """Admit a new request."""
    originals = dict(book.reservations)
    decided = _granted(book, checked.ask, now_us, timing)
    if isinstance(decided, Decision):
        return decided
    granted, told = decided
    outcome = lifecycle.create(request_id, owner, checked, granted, now_us, traceparent, timing)
    return _done(book, granted, (*told, book.take(outcome, now_us)), told, originals, now_us, timing)


def change(book: Book, request_id: str, wanted: Change, now_us: int, timing: Timing) -> Decision:
    """Change in service: another rate, end or priority on the path that the request has. Refused, it stays as it is."""
    originals = dict(book.reservations)
    before = originals[request_id]
    asked = rates.asked_anew(before, wanted)
    if not wanted.of_rate:
        return Decision((book.take(rates.changed(before, asked, None, now_us, timing), now_us),))
    ask = ask_for_change(before, asked, now_us)
    book.ledger.remove(before.commitments, now_us)
    without = dataclasses.replace(before, commitments=())
    book.reservations[request_id] = without
    decided = _granted(book, ask, now_us, timing)
    if isinstance(decided, Decision):
        book.ledger.add(one for one in before.commitments if one.end_us > now_us)
        book.reservations[request_id] = before
        return decided
    granted, told = decided
    outcome = rates.changed(before, asked, granted, now_us, timing)
    return _done(book, granted, (*told, book.take(outcome, now_us)), told, originals, now_us, timing)


def ask_for_change(before: Reservation, asked: Reservation, now_us: int) -> Ask:
    """What admission has to decide about a change: a request without its rate may look for another path, one with it
    keeps the one that its packets take.
    """
    ask = dataclasses.replace(asked.ask(now_us), own=before.own_room)
    return dataclasses.replace(ask, path=before.link_ids, prefer=()) if before.commitments else ask


def readmit(book: Book, request_id: str, now_us: int, timing: Timing) -> Decision:
    """Give a request that lacks its rate, or whose link failed, what it may have now: its path if it still carries it,
    else another one; if nothing fits it is degraded. No outcome: all stays as it is.
    """
    originals = dict(book.reservations)
    before = originals[request_id]
    ask = before.ask(now_us)
    if not before.live or not ask.commits:
        return Decision()
    book.ledger.remove(before.commitments, now_us)
    book.reservations[request_id] = dataclasses.replace(before, commitments=())
    decided = _granted(book, ask, now_us, timing)
    if isinstance(decided, Decision):
        book.ledger.add(one for one in before.commitments if one.end_us > now_us)
        book.reservations[request_id] = before
        if decided.needs_holders:
            return dataclasses.replace(decided, outcomes=())
        assert decided.refused is not None
        why, elsewhere = decided.refused.detail, _runs_on(book.network, before, decided.refused)
        if before.commitments:
            lost = rates.degrade(before, why, now_us, timing, elsewhere)
        elif elsewhere:
            lost = rates.run_on(before, elsewhere, why, now_us, timing)
        else:
            return dataclasses.replace(decided, outcomes=())
        settled = _settled(book, (book.take(lost, now_us),), originals, now_us, timing)
        return dataclasses.replace(decided, outcomes=settled)
    granted, told = decided
    if before.has(granted) and not told and before.service_state == ServiceState.SERVICE_STATE_GRANTED:
        book.ledger.add(one for one in before.commitments if one.end_us > now_us)
        book.reservations[request_id] = before
        return Decision(granted=granted)
    outcome = rates.restore(before, granted, now_us, timing)
    return _done(book, granted, (*told, book.take(outcome, now_us)), told, originals, now_us, timing)


def apply(book: Book, outcome: Outcome | None, now_us: int, timing: Timing) -> Outcome | None:
    """Make the outcome of one of `lifecycle`'s functions (release, commit, at_due, on_status) count in the book."""
    if outcome is None:
        return None
    originals = dict(book.reservations)
    return _settled(book, (book.take(outcome, now_us),), originals, now_us, timing)[0]


def enter_force(book: Book, request_id: str, now_us: int, timing: Timing) -> Outcome | None:
    """A request whose rate waits gets it into force if it fits now; None: it goes on waiting, or does not wait."""
    one = book.reservations[request_id]
    if not one.active or not one.waits_until_us:
        return None
    if now_us < one.waits_until_us and not draining.may_enter(book.network, book.ledger, one, now_us, timing):
        return None
    return book.take(lifecycle.enter_force(one, now_us, timing), now_us)


def preview_wait_us(
    book: Book,
    ask: Ask,
    granted: Granted,
    losers: Iterable[preemption.Loser],
    held: Reservation | None,
    now_us: int,
    timing: Timing,
) -> int:
    """Until when a request that begins now would wait for what drains, 0: not at all. `held` is the request that it
    replaces, which the ledger does not have. The losers give way in the book.
    """
    if ask.start_us > now_us or not ask.commits:
        return 0
    losing = list(losers)
    originals = {one.reservation.id: one.reservation for one in losing}
    told = tuple(book.take(rates.preempt(one.reservation, one.keeps_bps, now_us, timing), now_us) for one in losing)
    _settled(book, told, originals, now_us, timing)
    return draining.preview_until_us(book.network, book.ledger, granted, held, now_us, timing)


def overcommitted(book: Book, link_ids: Iterable[str], now_us: int) -> list[str]:
    """Of links that shrank or are gone those that have more committed than they may, from now on."""
    found = []
    for link_id in link_ids:
        link = book.network.links.get(link_id)
        firm = book.ledger.peak_bps(link_id, now_us, _END)
        soft = book.ledger.peak_bps(link_id, now_us, _END, Kind.SOFT)
        admissible, promised = (link.admissible_bps, link.oversubscribable_bps) if link else (0, 0)
        if firm > admissible or firm + soft > promised:
            found.append(link_id)
    return found


def relieve(book: Book, link_ids: Collection[str], now_us: int, timing: Timing) -> Decision:
    """Admit anew everyone who holds anything on links that failed or shrank: the highest rank chooses first, so the
    lowest, latest lose. Every holder of the links has to be in the book.
    """
    originals = dict(book.reservations)
    affected = preemption.order(book.holders(link_ids))
    if not book.holders_known:
        others = {one for each in affected for one in candidate_link_ids(book.network, each.ask(now_us))}
        return Decision(needs_holders=tuple(sorted(others | set(link_ids))))
    return _admit_all(book, affected, originals, now_us, timing)


def reroute(book: Book, request_ids: Collection[str], now_us: int, timing: Timing) -> Decision:
    """Admit anew requests whose packets take another path than they are committed on, the highest rank first; what does
    not fit there is degraded. Those that follow their routes stay as they are.
    """
    originals = dict(book.reservations)
    affected = preemption.order(
        one for one in (originals[each] for each in request_ids if each in originals) if strays(book.network, one)
    )
    if affected and not book.holders_known:
        others = {one for each in affected for one in candidate_link_ids(book.network, each.ask(now_us))}
        return Decision(needs_holders=tuple(sorted(others)))
    return _admit_all(book, affected, originals, now_us, timing)


def strays(network: Network, one: Reservation) -> bool:
    """Whether the packets of a request take another path than it has."""
    seen = dict(one.observed)
    if not one.live or not one.source_node or not (network.routes or seen):
        return False
    if wanted_bps(one.specification) and not one.commitments:
        # Nothing to move: it lacks its rate and is tried again as such.
        return False
    return not _follows(network, one)


def _follows(network: Network, one: Reservation) -> bool:
    ends = one.source_node, one.destination_node
    return routing.follows(network, *ends, towards(one.selector), one.link_ids, dict(one.observed))


def _runs_on(network: Network, before: Reservation, refused: Refused) -> tuple[NetworkLink, ...]:
    """The path on which packets of a request go on that does not fit there; empty: they stay on the one that it has, or
    go nowhere.
    """
    links = tuple(network.links[one] for one in refused.link_ids if one in network.links)
    if refused.code != "insufficient-capacity" or not links or refused.link_ids == before.link_ids:
        return ()
    carries = all(one in network.links and network.links[one].capacity_bps > 0 for one in before.link_ids)
    return () if carries and _follows(network, before) else links


def _admit_all(
    book: Book, affected: list[Reservation], originals: Mapping[str, Reservation], now_us: int, timing: Timing
) -> Decision:
    """Requests, in the order in which they lose, admitted again from the last on."""
    for one in affected:
        book.ledger.remove(one.commitments, now_us)
        book.reservations[one.id] = dataclasses.replace(one, commitments=())
    outcomes: list[Outcome] = []
    losers: list[str] = []
    for before in reversed(affected):
        decided = _granted(book, before.ask(now_us, floor=True), now_us, timing)
        if isinstance(decided, Decision):
            assert decided.refused is not None
            if not before.commitments:
                # It has no guarantee to lose.
                book.reservations[before.id] = before
                continue
            why = ": ".join(filter(None, (observed.off_path(before), decided.refused.detail)))
            elsewhere = _runs_on(book.network, before, decided.refused)
            outcomes.append(book.take(rates.degrade(before, why, now_us, timing, elsewhere), now_us))
            continue
        granted, told = decided
        outcomes += told
        losers += [one.reservation.id for one in told]
        if before.has(granted):
            book.ledger.add(one for one in before.commitments if one.end_us > now_us)
            book.reservations[before.id] = before
        else:
            outcomes.append(book.take(rates.restore(before, granted, now_us, timing), now_us))
    return Decision(_settled(book, tuple(outcomes), originals, now_us, timing), losers=tuple(losers))


_END = (1 << 63) - 1


def _granted(book: Book, ask: Ask, now_us: int, timing: Timing) -> tuple[Granted, tuple[Outcome, ...]] | Decision:
    """The grant and those who gave way for it, already counted in the book; else why not."""
    decided = decide(book, ask, now_us)
    if decided is None:
        return Decision(needs_holders=tuple(candidate_link_ids(book.network, ask)))
    decision, losers = decided
    if isinstance(decision, Refused):
        return Decision(refused=decision)
    told = tuple(book.take(rates.preempt(one.reservation, one.keeps_bps, now_us, timing), now_us) for one in losers)
    return decision, told


def _settled(
    book: Book, outcomes: tuple[Outcome, ...], originals: Mapping[str, Reservation], now_us: int, timing: Timing
) -> tuple[Outcome, ...]:
    """The outcomes of a whole decision with what drains and what waits for it, noted in the book."""
    settled = draining.settle(book.network, book.ledger, outcomes, originals, now_us, timing)
    book.reservations.update({one.reservation.id: one.reservation for one in settled})
    return settled


def _done(
    book: Book,
    granted: Granted,
    outcomes: tuple[Outcome, ...],
    told: tuple[Outcome, ...],
    originals: Mapping[str, Reservation],
    now_us: int,
    timing: Timing,
) -> Decision:
    settled = _settled(book, outcomes, originals, now_us, timing)
    return Decision(settled, granted, losers=tuple(one.reservation.id for one in told))
