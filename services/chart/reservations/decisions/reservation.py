"""One request with everything known about it, and what a change of it brings along. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chart.reservations.decisions import room
from chart.reservations.decisions.admission import SMALLEST_RATE_BPS, Ask, Granted
from chart.reservations.decisions.ledger import Drain, Kind, LinkCommitment
from chart.v1 import flow_grant_pb2, grant_status_pb2
from chart.v1.flow_grant_pb2 import ServiceType
from chart.v1.rate_request_pb2 import Lifecycle, RateRequestSpecification, TrafficClass

# Looked up once: to look a name of an enum up costs more than the comparison.
ACTIVE = Lifecycle.LIFECYCLE_ACTIVE
BACKGROUND = TrafficClass.TRAFFIC_CLASS_BACKGROUND
MAXIMUM = ServiceType.SERVICE_TYPE_MAXIMUM
LIVE = (Lifecycle.LIFECYCLE_HELD, Lifecycle.LIFECYCLE_RESERVED, ACTIVE)
# Former rates of a request that its receipt can tell; of more the oldest are left out.
MAXIMUM_HISTORY = 200


@dataclass(frozen=True)
class Timing:
    """Time limits, microseconds."""

    grant_validity_us: int = 60_000_000
    confirmation_limit_us: int = 10_000_000
    remember_ended_us: int = 24 * 3600 * 1_000_000
    hold_limit_us: int = 900 * 1_000_000
    # An enforced grant without a flow for this long is warned about. Nodes report on a grant every 10 s.
    no_flow_limit_us: int = 20_000_000
    # The greatest difference between two clocks.
    clock_error_us: int = 1_000_000


@dataclass(frozen=True, slots=True)
class PastRate:
    """What was granted until a moment."""

    until_us: int
    granted_bps: int
    service_state: int


@dataclass(frozen=True, slots=True)
class Draining:
    """Earlier rates of a request that nodes may still apply: the nodes that did not report yet that they do not, and
    what drains on each link.
    """

    nodes: tuple[str, ...] = ()
    parts: tuple[Drain, ...] = ()

    @property
    def until_us(self) -> int:
        """When all of it is over at the latest; 0: nothing drains."""
        return max((part.until_us for part in self.parts), default=0)

    @property
    def generation(self) -> int:
        """Of the newest grant that it was told with."""
        return max((part.generation for part in self.parts), default=0)


def rank_of(specification: RateRequestSpecification) -> int:
    """Who takes from whom: background 0, foreground 1 + its pre-emption priority."""
    background = specification.traffic_class == BACKGROUND
    return 0 if background else 1 + specification.preemption_priority


def kind_of(specification: RateRequestSpecification) -> Kind:
    """Maximum rates may be oversubscribed, all others may not."""
    return Kind.SOFT if specification.service == MAXIMUM else Kind.FIRM


def towards(selector: flow_grant_pb2.FlowSelector) -> tuple[str, ...]:
    """Where the packets of a selector go to, CIDR; none: not known."""
    return tuple(selector.destination_prefixes) or tuple(filter(None, (selector.destination_prefix,)))


def wanted_bps(specification: RateRequestSpecification) -> int:
    """What a request would commit in full."""
    soft = kind_of(specification) == Kind.SOFT
    return specification.maximum_bps if soft else specification.guaranteed_bps


@dataclass(frozen=True)
class Reservation:
    """One request."""

    id: str
    revision: int
    owner: str
    specification: RateRequestSpecification
    selector: flow_grant_pb2.FlowSelector
    lifecycle: int
    enforcement: int
    service_state: int
    callback_state: int
    granted_bps: int
    link_ids: tuple[str, ...]
    confirming_nodes: tuple[str, ...]
    start_us: int
    end_us: int
    created_at_us: int
    updated_at_us: int
    enforced_at_us: int
    reason: str
    # Of the newest grant record, and of the first record with the same content: a renewal needs no new confirmation.
    generation: int
    content_generation: int
    grant_issued_at_us: int
    grant_valid_until_us: int
    # Until when the nodes have to confirm; 0 when nothing is waited for.
    confirm_by_us: int
    # The next moment at which `at_due` has something to do; FOREVER_US: none.
    due_at_us: int
    # Of the call that asked for it; travels with every grant record.
    traceparent: str
    # Until when a held request may be committed.
    hold_until_us: int = 0
    # Source and destination as nodes: what a new path is looked for between.
    source_node: str = ""
    destination_node: str = ""
    ended_at_us: int = 0
    # Why the rate is not as asked; `reason` is this and what the nodes say.
    service_reason: str = ""
    history: tuple[PastRate, ...] = ()
    # Since when no flow of it was seen, at the earliest since it was enforced; 0 while it is not. `unmatched`: for so
    # long that its owner is warned.
    quiet_since_us: int = 0
    unmatched: bool = False
    # While its rate waits for what drains on its path: until when at the latest, and what nodes are told meanwhile.
    waits_until_us: int = 0
    in_force_bps: int = 0
    draining: Draining = Draining()
    confirmations: Mapping[str, grant_status_pb2.GrantStatus] = field(default_factory=dict)
    commitments: tuple[LinkCommitment, ...] = ()

    @property
    def observed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Nodes of the path that were seen to send its packets where their routes do not lead, with the links that they
        leave by.
        """
        found = []
        for node in self.confirming_nodes:
            status = self.confirmations.get(node)
            if status is not None and status.egress_against_routes:
                links = tuple(one.link_id for one in status.egress if one.link_id.rpartition(":")[0] == node)
                if links:
                    found.append((node, links))
        return tuple(found)

    @property
    def active(self) -> bool:
        """Whether its grant is in force."""
        return self.lifecycle == ACTIVE

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.lifecycle in LIVE

    @property
    def background(self) -> bool:
        """Whether it takes what foreground leaves."""
        return self.specification.traffic_class == BACKGROUND

    @property
    def rank(self) -> int:
        """Order of admission and pre-emption, a higher rank first."""
        return rank_of(self.specification)

    @property
    def committed_bps(self) -> int:
        """What it has on every link of its path."""
        return self.commitments[0].committed_bps if self.commitments else 0

    @property
    def lacking(self) -> bool:
        """Whether it is to get more as soon as there is more: background, and whoever had more once."""
        if not self.live or self.committed_bps >= wanted_bps(self.specification):
            return False
        return self.background or bool(self.history)

    def commitments_for(self, granted: Granted, now_us: int) -> tuple[LinkCommitment, ...]:
        """What a grant commits on its path."""
        start_us = 0 if self.start_us <= now_us else self.start_us
        kind = kind_of(self.specification)
        committed_bps = granted.committed_bps
        if not committed_bps:
            return ()
        return tuple(LinkCommitment(one, committed_bps, start_us, self.end_us, kind) for one in granted.link_ids)

    def has(self, granted: Granted) -> bool:
        """Whether it has on this path what a grant would give it."""
        return granted.link_ids == self.link_ids and granted.committed_bps == self.committed_bps

    def ask(self, now_us: int, *, floor: bool = False) -> Ask:
        """What admission has to decide about it anew, on the path that it has or another. With `floor` it keeps what it
        has, rather than what it asked for.
        """
        specification = self.specification
        wanted = wanted_bps(specification)
        if floor and self.committed_bps:
            wanted = min(wanted, self.committed_bps)
        minimum = specification.minimum_bps
        if self.background:
            minimum = minimum or SMALLEST_RATE_BPS
        return Ask(
            self.source_node,
            self.destination_node,
            wanted,
            min(minimum, wanted),
            max(self.start_us, now_us),
            self.end_us,
            kind_of(specification),
            self.rank,
            frozenset(specification.avoid),
            # Written before nodes were stored with requests: it keeps its path.
            path=() if self.source_node else self.link_ids,
            prefer=self.link_ids,
            towards=towards(self.selector),
            observed=self.observed,
            selectors=room.selectors_of(self.selector),
            own=self.own_room,
        )

    @property
    def own_room(self) -> room.Own | None:
        """What it holds at the nodes of its path."""
        if not self.live:
            return None
        return room.Own(self.id, self.confirming_nodes, room.selectors_of(self.selector), self.end_us)

    def replaced(self, **changes: Any) -> Reservation:
        """A copy with other values in some fields; `dataclasses.replace` looks at all of them and takes longer."""
        values = self.__dict__
        if not changes.keys() <= values.keys():
            msg = f"a reservation has no {', '.join(sorted(changes.keys() - values.keys()))}"
            raise TypeError(msg)
        made = object.__new__(Reservation)
        made.__dict__.update(values, **changes)
        return made


@dataclass(frozen=True)
class Outcome:
    """A changed reservation, and what has to be told."""

    reservation: Reservation
    # A grant record: "put", "tombstone", or "" for none.
    grant: str = ""
    # Whether chart.rate-request.v1 gets the request anew (or, for "forget", its tombstone).
    announce: bool = True
    forget: bool = False
    frees_capacity: bool = False
    # What drained by it: no node applies it any more.
    drained: tuple[Drain, ...] = ()
    action: str = ""
