"""Calls about the network as admission sees it: paths to choose from, and what a link has committed over time."""

from __future__ import annotations

from typing import Any

from chart.common.clock import Clock
from chart.common.rpc_errors import invalid, not_found
from chart.reservations import loading, paths, reading, validation
from chart.reservations.admission import FOREVER_US
from chart.reservations.ledger import Kind
from chart.reservations.profile import seconds
from chart.reservations.repository import Repository
from chart.reservations.view import NetworkView
from chart.reservations.windows import steps
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
        async with self._repository.pool.connection() as connection, connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            spans = [(link_id, *interval) for link_id in network.links]
            ledger = await reading.ledger_of(connection, list(network.links), spans)
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
        async with self._repository.pool.connection() as connection:
            firm = (await loading.commitments(connection, [link.id], start_us))[link.id]
            soft = (await loading.commitments(connection, [link.id], start_us, Kind.SOFT))[link.id]
            rows = await connection.execute(
                "SELECT rate_bps, drawn_bps FROM lease WHERE link_id = %s AND valid_until_us > %s", (link.id, now_us)
            )
            lease = await rows.fetchone()
        firm_steps, soft_steps = dict(steps(firm, start_us, end_us)), dict(steps(soft, start_us, end_us))
        moments = sorted({*firm_steps, *soft_steps})
        if len(moments) > MOST_STEPS:
            raise invalid("end_us", f"commitments change more than {MOST_STEPS} times", "use a shorter time range")
        answer = pb.GetLinkCapacityResponse(capacity_bps=link.capacity_bps, admissible_bps=link.admissible_bps)
        if lease is not None:
            answer.lease_bps, answer.in_band_bps = lease["rate_bps"], lease["drawn_bps"]
        committed = promised = 0
        for moment in moments:
            committed, promised = firm_steps.get(moment, committed), soft_steps.get(moment, promised)
            free = min(link.admissible_bps - committed, link.oversubscribable_bps - committed - promised)
            answer.steps.add(start_us=moment, committed_bps=committed, maximum_bps=promised, free_bps=max(0, free))
        return answer
