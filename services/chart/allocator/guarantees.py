"""What is guaranteed on each link: granted rates, and what in-band requests may draw."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from chart.common import leases
from chart.v1 import flow_grant_pb2, gr_lease_pb2


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
        # Links whose sum may differ: now, and from a moment on.
        self._changed: set[str] = set()
        self._moments: list[tuple[int, str]] = []

    def put(self, request_id: str, grant: flow_grant_pb2.FlowGrant | None) -> None:
        """Note a grant as it now is; None: released."""
        for link_id in self._links_of.pop(request_id, ()):
            self._by_link[link_id].pop(request_id, None)
            self._changed.add(link_id)
        if grant is None:
            return
        commitment = _Commitment(grant.guaranteed_bps, grant.valid_from_us, grant.valid_until_us)
        self._links_of[request_id] = tuple(grant.link_ids)
        for link_id in grant.link_ids:
            self._by_link.setdefault(link_id, {})[request_id] = commitment
            self._changed.add(link_id)
            heapq.heappush(self._moments, (commitment.valid_from_us, link_id))
            heapq.heappush(self._moments, (commitment.valid_until_us, link_id))

    def reserved_bps(self, link_id: str, now_us: int) -> int:
        """Sum of the guaranteed rates that hold now on a link."""
        return sum(
            commitment.guaranteed_bps
            for commitment in self._by_link.get(link_id, {}).values()
            if commitment.valid_from_us <= now_us and leases.is_valid(commitment.valid_until_us, now_us)
        )

    def take_changed(self, now_us: int) -> set[str]:
        """Links whose sum may have changed since the last call; the clock must not step back for more than that."""
        while self._moments and self._moments[0][0] <= now_us:
            self._changed.add(heapq.heappop(self._moments)[1])
        changed, self._changed = self._changed, set()
        return changed


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
