"""What the allocator decides, without streams or a clock: link loads, capacities and grants in, link rates out.

One `NodeAllocation` per node holds a controller per link. A record of all the node's links goes out when one of them
changed by 1 % or when half of the lease is over (The CHART System, section 4; design: signalling, link rate control).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from chart.allocator.controller import LinkController, LinkDecision, LinkSample
from chart.common import leases
from chart.v1 import flow_grant_pb2, gr_lease_pb2, link_load_pb2, link_rate_pb2

# Relative change of a link's figures that is worth a record.
SIGNIFICANT_CHANGE = 0.01


@dataclass(frozen=True, slots=True)
class _Commitment:
    guaranteed_bps: int
    valid_from_us: int
    valid_until_us: int


class GrantBook:
    """Guaranteed rates that are granted now, by link."""

    def __init__(self) -> None:
        self._links_of: dict[str, tuple[str, ...]] = {}
        self._by_link: dict[str, dict[str, _Commitment]] = {}

    def put(self, request_id: str, grant: flow_grant_pb2.FlowGrant | None) -> None:
        """Note a grant as it now is; None: released."""
        for link_id in self._links_of.pop(request_id, ()):
            self._by_link[link_id].pop(request_id, None)
        if grant is None:
            return
        commitment = _Commitment(grant.guaranteed_bps, grant.valid_from_us, grant.valid_until_us)
        self._links_of[request_id] = tuple(grant.link_ids)
        for link_id in grant.link_ids:
            self._by_link.setdefault(link_id, {})[request_id] = commitment

    def reserved_bps(self, link_id: str, now_us: int) -> int:
        """Sum of the guaranteed rates that hold now on a link."""
        return sum(
            commitment.guaranteed_bps
            for commitment in self._by_link.get(link_id, {}).values()
            if commitment.valid_from_us <= now_us and leases.is_valid(commitment.valid_until_us, now_us)
        )


class LeaseBook:
    """What in-band requests may draw on each link (chart.gr-lease.v1), and until when."""

    def __init__(self) -> None:
        self._leases: dict[str, gr_lease_pb2.GrLease] = {}

    def put(self, link_id: str, lease: gr_lease_pb2.GrLease | None) -> None:
        """Note a link's lease as it now is; None: taken back. An older generation than the known one does not count."""
        known = self._leases.get(link_id)
        if lease is None:
            self._leases.pop(link_id, None)
        elif known is None or lease.generation >= known.generation:
            self._leases[link_id] = lease

    def valid(self, link_id: str, now_us: int) -> tuple[int, int]:
        """Rate and end of a link's lease; (0, 0) when it has none that holds."""
        lease = self._leases.get(link_id)
        if lease is None or not leases.is_valid(lease.valid_until_us, now_us):
            return 0, 0
        return lease.lease_bps, lease.valid_until_us


def sample_of(load: link_load_pb2.LinkLoad, interval_us: int, capacity_bps: int, reserved_bps: int) -> LinkSample:
    """A link's load as the controller takes it. `interval_us` must not be 0."""
    per_second = 8e6 / interval_us
    return LinkSample(
        interval_us=interval_us,
        capacity_bps=float(capacity_bps),
        explicit_bps=load.explicit_rate_bytes * per_second,
        legacy_bps=load.legacy_bytes * per_second,
        explicit_queue_bytes=load.explicit_rate_queue_bytes,
        legacy_queue_bytes=max(0, load.queue_bytes - load.explicit_rate_queue_bytes),
        active_flows=load.active_flows,
        legacy_flows=load.legacy_flows,
        guaranteed_reserved_bps=float(reserved_bps + load.in_band_committed_bps),
        guaranteed_in_use_bps=float(load.guaranteed_in_use_bps + load.in_band_committed_bps),
        rtt_us=load.rtt_us,
    )


def next_generation(now_us: int, *known: int) -> int:
    """A generation above every known one; the clock makes it grow across restarts and hand-overs too."""
    return max(now_us, *(generation + 1 for generation in known), 1)


class NodeAllocation:
    """Rate control of all links of one node."""

    def __init__(self, node: str, law: str, previous: link_rate_pb2.LinkRates | None = None) -> None:
        """`previous` is the newest record of the node, by whichever replica: its rates and generation go on."""
        self.node = node
        self.law = law
        self.published: link_rate_pb2.LinkRates | None = previous
        self.last_report_us = 0
        self.decisions: dict[str, LinkDecision] = {}
        self.leases: dict[str, tuple[int, int]] = {}
        self._restored = {rate.link_id: rate.available_bps for rate in previous.links} if previous else {}
        self._controllers: dict[str, LinkController] = {}

    def take(
        self,
        report: link_load_pb2.LinkLoadReport,
        capacities: Mapping[str, int],
        reserved_bps: Callable[[str], int],
        now_us: int,
    ) -> list[str]:
        """Take one report of the node; returns links of the report that are not in the topology (`capacities`)."""
        self.last_report_us = now_us
        unknown = []
        decisions = {}
        for load in report.links:
            capacity_bps = capacities.get(load.link_id, 0)
            if capacity_bps <= 0:
                unknown.append(load.link_id)
                continue
            controller = self._controllers.get(load.link_id)
            if controller is None:
                controller = LinkController(self.law, self._restored.pop(load.link_id, 0))
                self._controllers[load.link_id] = controller
            sample = sample_of(load, max(1, report.interval_us), capacity_bps, reserved_bps(load.link_id))
            decisions[load.link_id] = controller.update(sample)
        self.decisions = decisions
        for gone in self._controllers.keys() - decisions.keys():
            del self._controllers[gone]
        return unknown

    def use_law(self, law: str) -> None:
        """Change the control law; each link goes on from its rate."""
        if law != self.law:
            self.law = law
            self._restored = {link_id: int(one.rate_bps) for link_id, one in self._controllers.items()}
            self._controllers = {}

    def due(self, now_us: int) -> bool:
        """Whether what was decided has to go out now."""
        if not self.decisions:
            return False
        published = self.published
        if published is None or leases.renewal_due(published.issued_at_us, published.valid_until_us, now_us):
            return True
        told = {rate.link_id: rate for rate in published.links}
        return told.keys() != self.decisions.keys() or any(
            differs(told[link_id], decision) or self._lease_is_new(told[link_id], now_us)
            for link_id, decision in self.decisions.items()
        )

    def _lease_is_new(self, told: link_rate_pb2.LinkRate, now_us: int) -> bool:
        """Whether what may be drawn in band is not what was told; an end that everybody knew of is no news."""
        rate_bps, until_us = self.leases.get(told.link_id, (0, 0))
        if not until_us:
            return leases.is_valid(told.gr_lease_until_us, now_us)
        return (rate_bps, until_us) != (told.gr_lease_bps, told.gr_lease_until_us)

    def record(self, now_us: int, lease_us: int, known_generation: int = 0) -> link_rate_pb2.LinkRates:
        """The record to publish. `known_generation` is the newest one in the stream."""
        own = self.published.generation if self.published else 0
        return link_rate_pb2.LinkRates(
            node=self.node,
            generation=next_generation(now_us, own, known_generation),
            issued_at_us=now_us,
            valid_until_us=now_us + lease_us,
            controller=self.law,
            links=[
                link_rate_pb2.LinkRate(
                    link_id=link_id,
                    available_bps=decision.available_bps,
                    explicit_rate_capacity_bps=decision.explicit_rate_capacity_bps,
                    legacy_share_bps=decision.legacy_share_bps,
                    active_flows=decision.active_flows,
                    gr_lease_bps=self.leases.get(link_id, (0, 0))[0],
                    gr_lease_until_us=self.leases.get(link_id, (0, 0))[1],
                )
                for link_id, decision in sorted(self.decisions.items())
            ],
        )


def differs(told: link_rate_pb2.LinkRate, decision: LinkDecision) -> bool:
    """Whether a link's figures moved by 1 %, or the flow count that newcomers reckon with changed."""

    def moved(before: int, after: int, scale: int) -> bool:
        return abs(after - before) > SIGNIFICANT_CHANGE * scale

    capacity = told.explicit_rate_capacity_bps
    return (
        told.active_flows != decision.active_flows
        or moved(told.available_bps, decision.available_bps, told.available_bps)
        or moved(capacity, decision.explicit_rate_capacity_bps, capacity)
        or moved(told.legacy_share_bps, decision.legacy_share_bps, capacity)
    )


def law_of(policies: Iterable[tuple[str, str]], node: str) -> str:
    """The control law that (policy id, law) pairs give a node: its own policy, else "default", else NEC."""
    stated = {identity: law for identity, law in policies if law in ("nec", "rcp")}
    return stated.get(node) or stated.get("default") or "nec"
