"""gRPC `Inference`: estimates from memory, and what to measure next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from chart.common.clock import Clock, SystemClock
from chart.common.rpc import Registration
from chart.common.rpc_errors import invalid
from chart.inference import ranking, service
from chart.inference.streams import InferenceService
from chart.v1 import inference_pb2, inference_pb2_grpc

DEFAULT_LIMIT, MOST = 1000, 10_000
DEFAULT_COUNT, MOST_PAIRS = 10, 1000
MOST_CANDIDATES = 1000


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """Answers from what was last told."""

    def __init__(self, inference: InferenceService, clock: Clock | None = None) -> None:
        self._inference = inference
        self._clock = clock or SystemClock()

    async def ListEstimates(  # noqa: N802 - named by the interface
        self, request: inference_pb2.ListEstimatesRequest, context: Any
    ) -> inference_pb2.ListEstimatesResponse:
        """One page of estimates."""
        if request.limit > MOST:
            raise invalid("limit", f"must be at most {MOST}")
        estimates, cursor = service.page(
            self._inference.told,
            source=request.source_node,
            destination=request.destination_node,
            metric=request.metric,
            limit=request.limit or DEFAULT_LIMIT,
            cursor=request.cursor,
        )
        now_us = self._clock.now_us()
        ages_us = [max(0, now_us - estimate.estimated_at_us) for estimate in estimates]
        return inference_pb2.ListEstimatesResponse(estimates=estimates, ages_us=ages_us, next_cursor=cursor)

    async def NextPairs(  # noqa: N802
        self, request: inference_pb2.NextPairsRequest, context: Any
    ) -> inference_pb2.NextPairsResponse:
        """What to measure next for a metric."""
        if service.kind_of(request.metric) is None:
            raise invalid("metric", f"{request.metric!r} is not a metric that is inferred")
        if request.count > MOST_PAIRS:
            raise invalid("count", f"must be at most {MOST_PAIRS}")
        wanted = self._inference.next_pairs(request.metric, request.count or DEFAULT_COUNT)
        return inference_pb2.NextPairsResponse(
            pairs=[
                inference_pb2.NextPair(
                    source_node=one.source,
                    destination_node=one.destination,
                    metric=one.metric,
                    reason=one.reason,
                    relative_width=one.relative_width,
                )
                for one in wanted
            ]
        )

    async def RankNodes(  # noqa: N802
        self, request: inference_pb2.RankNodesRequest, context: Any
    ) -> inference_pb2.RankNodesResponse:
        """Nodes by a metric, the best first."""
        _checked(request.metric, request.count, request.candidates)
        candidates = request.candidates or self._inference.book.known_nodes(request.metric)
        found = ranking.nodes(self._inference.told, request.node, request.metric, candidates, towards=request.towards)
        return inference_pb2.RankNodesResponse(
            nodes=[self._entry(one) for one in found.items[: request.count or DEFAULT_COUNT]],
            unit=service.unit_of(request.metric),
            unknown=found.unknown if request.candidates else (),
        )

    async def RankRelays(  # noqa: N802
        self, request: inference_pb2.RankRelaysRequest, context: Any
    ) -> inference_pb2.RankRelaysResponse:
        """Relays between two nodes by a metric, the best first."""
        _checked(request.metric, request.count, request.candidates)
        if not ranking.relayed(request.metric):
            raise invalid("metric", f"{request.metric} of two hops does not make up that of a path; take rtt_us")
        if request.source_node == request.destination_node:
            raise invalid("destination_node", "must be another node than source_node")
        candidates = request.candidates or self._inference.book.known_nodes(request.metric)
        found, direct = ranking.relays(
            self._inference.told, request.source_node, request.destination_node, request.metric, candidates
        )
        return inference_pb2.RankRelaysResponse(
            relays=[self._entry(one) for one in found.items[: request.count or DEFAULT_COUNT]],
            unit=service.unit_of(request.metric),
            unknown=found.unknown if request.candidates else (),
            direct=self._entry(direct) if direct is not None else None,
        )

    def _entry(self, one: ranking.Ranked) -> inference_pb2.RankedNode:
        return inference_pb2.RankedNode(
            node=one.node,
            value=one.value,
            interval_low=one.low,
            interval_high=one.high,
            method=one.method,
            age_us=max(0, self._clock.now_us() - one.estimated_at_us),
            may_be_best=one.may_be_best,
        )


def _checked(metric: str, count: int, candidates: Collection[str]) -> None:
    if service.kind_of(metric) is None:
        raise invalid("metric", f"{metric!r} is not a metric that is inferred")
    if count > MOST_PAIRS:
        raise invalid("count", f"must be at most {MOST_PAIRS}")
    if len(candidates) > MOST_CANDIDATES:
        raise invalid("candidates", f"must be at most {MOST_CANDIDATES}")


def registration(inference: InferenceService) -> Registration:
    """What `chart.common.rpc.serve` needs."""
    name = inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
    return name, inference_pb2_grpc.add_InferenceServicer_to_server, InferenceServicer(inference)
