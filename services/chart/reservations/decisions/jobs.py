"""What is asked of admission, one job each: which requests and links a job looks at, and its decision. Pure.

The group commit takes many jobs into one transaction; a job only says what has to be locked and read for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from chart.reservations.decisions import engine, quotas, rates, room
from chart.reservations.decisions.admission import Ask, candidate_link_ids, tracks_of
from chart.reservations.decisions.engine import Book, Decision
from chart.reservations.decisions.ledger import Drain
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.profile import US, seconds
from chart.reservations.decisions.quotas import Spending
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Outcome, Reservation, Timing
from chart.reservations.decisions.validation import CheckedRequest
from chart.reservations.decisions.windows import FOREVER_US

# Link and interval in seconds.
Span = tuple[str, int, int]
Known = Mapping[str, Reservation]


@dataclass(frozen=True)
class IdempotencyKey:
    """What the caller gave to make a repetition harmless; `key` is not empty."""

    owner: str
    key: str
    body_hash: bytes


class Job(Protocol):
    """One thing to decide."""

    @property
    def actor(self) -> str:
        """Who did it, for the audit."""
        ...

    @property
    def request_id(self) -> str:
        """The request that it is about, "" when it is a new one or several."""
        ...

    @property
    def enters(self) -> Timing | None:
        """The time limits by which rates come into force by it; None: none does."""
        ...

    def request_ids(self) -> Iterable[str]:
        """Requests that are there already and that it is going to change."""
        ...

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """What admission will be asked."""
        ...

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide, and make it count in the book.

        Raises:
            RefusalError: it is not to be.
        """
        ...


def _asks(job: Job, network: Network, known: Known, now_us: int) -> list[tuple[Ask, bool]]:
    """What admission is asked, and whether of links too: a new request that commits nothing is asked of nodes alone."""
    if isinstance(job, Create):
        return [(job.checked.ask, job.checked.ask.commits)]
    return [(ask, True) for ask in job.asks(network, known, now_us)]


def links(job: Job, network: Network, known: Known, now_us: int) -> set[str]:
    """Links that a job looks at or changes, and what stands for nodes (`room`)."""
    found: set[str] = set()
    for ask, of_links in _asks(job, network, known, now_us):
        candidates = candidate_link_ids(network, ask)
        found.update(tracks_of(network, candidates))
        found.update(candidates if of_links else ())
    for identity in job.request_ids():
        if identity in known:
            one = known[identity]
            found |= {held.link_id for held in (*one.commitments, *room.holds(one))}
    if isinstance(job, Drained):
        found |= {part.link_id for _, part in job.parts}
    return found


def entry_spans(link_ids: Iterable[str], now_us: int, timing: Timing) -> list[Span]:
    """What is looked at before a rate comes into force on links now."""
    interval = seconds(now_us - timing.clock_error_us, now_us + US)
    return [(link_id, *interval) for link_id in link_ids]


def spans(job: Job, network: Network, known: Known, now_us: int) -> list[Span]:
    """Links and intervals whose profiles a job looks at or changes, and those of nodes."""
    found: dict[Span, None] = {}
    places: list[Span] = []
    for ask, of_links in _asks(job, network, known, now_us):
        interval = seconds(ask.start_us, ask.end_us)
        candidates = candidate_link_ids(network, ask)
        found.update(((link_id, *interval), None) for link_id in (candidates if of_links else ()))
        places += [(track, *interval) for track in tracks_of(network, candidates)]
    for identity in job.request_ids():
        if identity in known:
            one = known[identity]
            found.update(((held.link_id, *seconds(held.start_us, held.end_us)), None) for held in one.commitments)
            places += [(held.link_id, *seconds(held.start_us, held.end_us)) for held in room.holds(one)]
    if job.enters is not None:
        found.update(dict.fromkeys(entry_spans({link_id for link_id, _, _ in found}, now_us, job.enters)))
    found.update(dict.fromkeys(places))
    return list(found)


@dataclass
class Create:
    """A new request."""

    identity: str
    owner: str
    checked: CheckedRequest
    traceparent: str
    timing: Timing
    key: IdempotencyKey | None = None
    request_id: str = ""
    operator: bool = False

    @property
    def actor(self) -> str:
        """Its owner."""
        return self.owner

    @property
    def enters(self) -> Timing | None:
        """Unless it is held first."""
        return None if self.checked.specification.hold else self.timing

    @property
    def spending(self) -> Spending:
        """What it takes from the quota."""
        return quotas.spending_of_new(self.owner, self.checked, operator=self.operator)

    def request_ids(self) -> Iterable[str]:
        """No request exists yet."""
        return ()

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """What admission is asked. A request without a guarantee commits nothing, so it need not wait for anybody."""
        return [self.checked.ask] if self.checked.ask.commits else []

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide and record it in the book. Raises RefusalError."""
        return engine.create(book, self.identity, self.owner, self.checked, now_us, self.traceparent, self.timing)


@dataclass
class Alter:
    """Change in service."""

    request_id: str
    actor: str
    change: Change
    timing: Timing
    # Raises what stands against it, by the request as it is once it is locked (values, revision, already ended).
    permitted: Callable[[Reservation], None]
    operator: bool = False

    @property
    def enters(self) -> Timing | None:
        """A raised rate."""
        return self.timing

    def request_ids(self) -> Iterable[str]:
        """The request itself."""
        return (self.request_id,)

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """The changed rate, path or end; nothing when only other fields change."""
        before = known.get(self.request_id)
        if before is None or not self.change.of_rate:
            return []
        return [rates.asked_anew(before, self.change).ask(now_us)]

    def spending(self, before: Reservation) -> Spending | None:
        """What the change takes more from the quota; None when nothing."""
        return quotas.spending_of_change(self.change, before, operator=self.operator)

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide and record it in the book. Raises RefusalError."""
        return engine.change(book, self.request_id, self.change, now_us, self.timing)


@dataclass
class Step:
    """One request moves on by itself or by its owner's word (release, commit, a hold that ran out)."""

    request_id: str
    actor: str
    step: Callable[[Reservation], Outcome | None]
    timing: Timing
    # Whether a rate may come into force by it.
    starts: bool = True

    @property
    def enters(self) -> Timing | None:
        """What starts."""
        return self.timing if self.starts else None

    def request_ids(self) -> Iterable[str]:
        """The request itself."""
        return (self.request_id,)

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """Nothing: no new rate is requested."""
        return []

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide and record it in the book. Raises RefusalError."""
        outcome = engine.apply(book, self.step(book.reservations[self.request_id]), now_us, self.timing)
        return Decision(() if outcome is None else (outcome,))


@dataclass
class EnterForce:
    """A request whose rate waits for what drains gets it into force, if it fits now."""

    request_id: str
    timing: Timing
    actor: str = "reservations"

    @property
    def enters(self) -> Timing | None:
        """Its rate."""
        return self.timing

    def request_ids(self) -> Iterable[str]:
        """The request itself."""
        return (self.request_id,)

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """Nothing: its rate is committed."""
        return []

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide and record it in the book."""
        outcome = engine.enter_force(book, self.request_id, now_us, self.timing)
        return Decision(() if outcome is None else (outcome,))


@dataclass
class Drained:
    """Rates of requests that no node applies any more, of all that was reported at once."""

    parts: tuple[tuple[str, Drain], ...]
    actor: str = "reservations"
    request_id: str = ""
    enters: Timing | None = None

    def request_ids(self) -> Iterable[str]:
        """Requests are as they were."""
        return ()

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """Nothing."""
        return []

    def decide(self, book: Book, now_us: int) -> Decision:
        """Note it in the book."""
        for request_id, part in self.parts:
            book.ledger.drained(request_id, part)
        return Decision()


@dataclass
class Readmit:
    """Give a request that lacks its rate what there is."""

    request_id: str
    timing: Timing
    actor: str = "reservations"

    @property
    def enters(self) -> Timing | None:
        """What it gets back."""
        return self.timing

    def request_ids(self) -> Iterable[str]:
        """The request itself."""
        return (self.request_id,)

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """Its full rate, when it lacks it."""
        before = known.get(self.request_id)
        return [before.ask(now_us)] if before is not None and before.lacking else []

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide and record it in the book. Raises RefusalError."""
        if not book.reservations[self.request_id].lacking:
            return Decision()
        decision = engine.readmit(book, self.request_id, now_us, self.timing)
        # That it still does not fit is no news.
        return Decision(decision.outcomes, decision.granted, None, decision.losers, decision.needs_holders)


@dataclass
class Relieve:
    """Admit anew everyone on links that failed or shrank."""

    link_ids: tuple[str, ...]
    holders: tuple[str, ...]
    timing: Timing
    actor: str = "reservations"
    request_id: str = ""

    @property
    def enters(self) -> Timing | None:
        """Rates that move to another path."""
        return self.timing

    def request_ids(self) -> Iterable[str]:
        """The requests with commitments on the links."""
        return self.holders

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """What admission is asked."""
        found = [known[one].ask(now_us) for one in self.holders if one in known]
        whole = [_over(one, now_us) for one in self.link_ids if one in network.links]
        return [*found, *whole]

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide and record it in the book. Raises RefusalError. Links that are gone have nothing more to be looked at
        than their holders.
        """
        crowded = [one for one in self.link_ids if one not in book.network.links]
        crowded += engine.overcommitted(book, [one for one in self.link_ids if one in book.network.links], now_us)
        return engine.relieve(book, crowded, now_us, self.timing) if crowded else Decision()


@dataclass
class Reroute:
    """Admit anew requests whose packets take another path than they are committed on."""

    strays: tuple[str, ...]
    timing: Timing
    actor: str = "reservations"
    request_id: str = ""

    @property
    def enters(self) -> Timing | None:
        """Rates that move to another path."""
        return self.timing

    def request_ids(self) -> Iterable[str]:
        """The requests."""
        return self.strays

    def asks(self, network: Network, known: Known, now_us: int) -> list[Ask]:
        """What admission is asked."""
        return [known[one].ask(now_us) for one in self.strays if one in known]

    def decide(self, book: Book, now_us: int) -> Decision:
        """Decide and record it in the book."""
        return engine.reroute(book, self.strays, now_us, self.timing)


def _over(link_id: str, now_us: int) -> Ask:
    """A question about one link from now on for good."""
    origin = link_id.split(":", 1)[0]
    return Ask(origin, origin, 0, 0, now_us, FOREVER_US, path=(link_id,))
