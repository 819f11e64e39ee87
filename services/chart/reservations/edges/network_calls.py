"""Calls about the network as admission sees it: paths to choose from, and what a link has committed over time."""

from __future__ import annotations

from typing import Any

from chart.common.clock import Clock
from chart.common.rpc_errors import invalid, not_found
from chart.reservations.decisions import paths, validation
from chart.reservations.decisions.ledger import Kind
from chart.reservations.decisions.profile import seconds
from chart.reservations.decisions.windows import FOREVER_US, steps
from chart.reservations.edges.network_view import NetworkView
from chart.reservations.store import committed, leases
from chart.reservations.store.repository import Repository
from chart.v1 import reservations_pb2 as pb

# Steps that a capacity is told in; a longer time has to be asked for in parts.
MOST_STEPS = 2_000


class NetworkCalls:
    """Part of the servicer."""

    def __init__(self, repository: Repository, view: NetworkView, clock: Clock) -> None:
        self._repository = repository
        self._view = view
        self._clock = clock

    async def FindPaths(self, request: pb.FindPathsRequest, context: Any) -> pb.FindPathsResponse:  # noqa: N802
        """Paths between two nodes, with what is free on them."""
        now_us = self._clock.now_us()
        network = self._view.network
        source = validation.node_of(request.source, "source", network)
        destination = validation.node_of(request.destination, "destination", network)
        if source == destination:
            raise invalid("destination", f"source and destination are the same node, {source}")
        start_us = max(request.start_us, now_us)
        end_us = request.end_us or FOREVER_US
        if end_us <= start_us:
            raise invalid("end_us", "the end is not after the start")
        for one in request.avoid:
            if one not in network.nodes and one not in network.links:
                raise invalid("avoid", f"{one!r} is not a node or link")
        interval = seconds(start_us, end_us)
        async with committed.snapshot(self._repository.pool) as connection:
            spans = [(link_id, *interval) for link_id in network.links]
            ledger = await committed.ledger_of(connection, list(network.links), spans)
        found = paths.alternatives(network, ledger, source, destination, start_us, end_us, frozenset(request.avoid))
        return pb.FindPathsResponse(
            paths=[
                pb.FoundPath(
                    kinds=[pb.PathKind.ValueType(kind) for kind in one.kinds],
                    link_ids=[link.id for link in one.links],
                    node_ids=one.nodes,
                    free_bps=one.free_bps,
                    admissible_bps=one.admissible_bps,
                    bottleneck_link_id=one.bottleneck.id,
                    delay_us=one.delay_us,
                    source=pb.PathSource.ValueType(one.source),
                    silent_nodes=one.silent,
                    branches=one.branches,
                )
                for one in found
            ]
        )

    async def GetLinkCapacity(  # noqa: N802
        self, request: pb.GetLinkCapacityRequest, context: Any
    ) -> pb.GetLinkCapacityResponse:
        """What a link has committed over a time."""
        now_us = self._clock.now_us()
        link = self._view.network.links.get(request.link_id)
        if link is None:
            raise not_found("link", request.link_id, sorted(self._view.network.links))
        start_us = max(request.start_us, now_us)
        end_us = request.end_us or FOREVER_US
        if end_us <= start_us:
            raise invalid("end_us", "the end is not after the start, or in the past")
        # Commitments and lease of one moment: what a renewal changes shows in both or in neither.
        async with committed.snapshot(self._repository.pool) as connection:
            firm = (await committed.commitments(connection, [link.id], start_us))[link.id]
            soft = (await committed.commitments(connection, [link.id], start_us, Kind.SOFT))[link.id]
            newest = await leases.newest(connection, link.id)
        firm_steps, soft_steps = dict(steps(firm, start_us, end_us)), dict(steps(soft, start_us, end_us))
        moments = sorted({*firm_steps, *soft_steps})
        if len(moments) > MOST_STEPS:
            raise invalid("end_us", f"commitments change more than {MOST_STEPS} times", "use a shorter time range")
        answer = pb.GetLinkCapacityResponse(capacity_bps=link.capacity_bps, admissible_bps=link.admissible_bps)
        if newest is not None:
            lease, drawn_bps = newest
            answer.lease_bps = lease.usable_bps(now_us)
            answer.in_band_bps = drawn_bps if now_us < lease.valid_until_us else 0
            answer.lease_draining_bps, answer.lease_draining_until_us = lease.draining(now_us)
        firm_bps = soft_bps = 0
        for moment in moments:
            firm_bps, soft_bps = firm_steps.get(moment, firm_bps), soft_steps.get(moment, soft_bps)
            free = min(link.admissible_bps - firm_bps, link.oversubscribable_bps - firm_bps - soft_bps)
            answer.steps.add(start_us=moment, committed_bps=firm_bps, maximum_bps=soft_bps, free_bps=max(0, free))
        return answer
