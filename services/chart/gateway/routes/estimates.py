"""Estimates, rankings and pairs to measure next; single runs and reports of sensor pods."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from grpc import aio
from pydantic import Field

from chart.common import names
from chart.common.problems import ProblemError
from chart.gateway import mapping_sensing
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, Limit, decode_cursor, encode_cursor
from chart.gateway.once import OnceRoute, once
from chart.gateway.routes.nodes import NodeIdPath, known_nodes
from chart.gateway.schemas.common import NODE_ID_PATTERN
from chart.gateway.schemas.sensing import (
    EstimatePage,
    NextPairs,
    RankedNodes,
    RankedRelays,
    RunBody,
    RunResults,
    SensingReport,
)
from chart.v1 import inference_pb2, inference_pb2_grpc, sensor_pod_pb2, sensor_pod_pb2_grpc

# Part of the router in history.py.
router = APIRouter(tags=["sensing"], responses=responses(401, 403, 422, 429, 500, 503), route_class=OnceRoute)

# A pod answers a single run within 30 s, or says why it does not.
RUN_DEADLINE_S = 35.0

NodeFilter = Annotated[str | None, Query(pattern=NODE_ID_PATTERN, max_length=names.NODE_LENGTH_MAX)]
MetricFilter = Annotated[str | None, Query(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])]

MetricName = Annotated[str, Query(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])]
NodeName = Annotated[str, Query(pattern=NODE_ID_PATTERN, max_length=names.NODE_LENGTH_MAX)]
Candidate = Annotated[str, Field(pattern=NODE_ID_PATTERN, max_length=names.NODE_LENGTH_MAX)]
Candidates = Annotated[
    list[Candidate] | None, Query(max_length=100, description="Only these nodes; repeatable. Not stated: every node.")
]
RankCount = Annotated[int, Query(ge=1, le=1000, description="Most nodes in the answer.")]


@router.get("/estimates", summary="Estimates for all pairs")
async def estimates(
    gateway: Context,
    _principal: AnyRole,
    source: NodeFilter = None,
    destination: NodeFilter = None,
    metric: MetricFilter = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> EstimatePage:
    """Measured values where they exist, estimates otherwise; each with method, age and a 90 % prediction interval."""
    request = inference_pb2.ListEstimatesRequest(
        source_node=source or "",
        destination_node=destination or "",
        metric=metric or "",
        limit=limit,
        cursor=decode_cursor(cursor) if cursor is not None else "",
    )
    stub = inference_pb2_grpc.InferenceStub(_inference(gateway))
    with problems("inference"):
        answer = await stub.ListEstimates(request)
    return EstimatePage(
        items=[
            mapping_sensing.estimate(one, age_us) for one, age_us in zip(answer.estimates, answer.ages_us, strict=True)
        ],
        next_cursor=encode_cursor(answer.next_cursor) if answer.next_cursor else None,
    )


@router.get("/next-pairs", summary="Pairs to measure next")
async def next_pairs(
    gateway: Context,
    _principal: AnyRole,
    metric: MetricName,
    count: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> NextPairs:
    """The pairs whose measurement reduces the uncertainty of all estimates most, best first."""
    stub = inference_pb2_grpc.InferenceStub(_inference(gateway))
    with problems("inference"):
        answer = await stub.NextPairs(inference_pb2.NextPairsRequest(metric=metric, count=count))
    return NextPairs(items=[mapping_sensing.next_pair(one) for one in answer.pairs])


@router.get("/ranked-nodes", summary="Closest nodes, best servers")
async def ranked_nodes(
    gateway: Context,
    _principal: AnyRole,
    node: NodeName,
    metric: MetricName = "rtt_us",
    candidate: Candidates = None,
    direction: Annotated[
        Literal["from", "to"],
        Query(description="from: from the node to the candidates; to: from the candidates to the node."),
    ] = "from",
    count: RankCount = 10,
) -> RankedNodes:
    """Nodes by a metric, the best first, each with its 90 % interval; measured or estimated.

    The closest node is the first by rtt_us, the best server of some the first among these candidates.
    """
    request = inference_pb2.RankNodesRequest(
        node=node, metric=metric, candidates=candidate or (), towards=direction == "to", count=count
    )
    stub = inference_pb2_grpc.InferenceStub(_inference(gateway))
    with problems("inference"):
        answer = await stub.RankNodes(request)
    return mapping_sensing.ranked_nodes(metric, answer)


@router.get("/ranked-relays", summary="Best relays between two nodes")
async def ranked_relays(
    gateway: Context,
    _principal: AnyRole,
    source: NodeName,
    destination: NodeName,
    metric: MetricName = "rtt_us",
    candidate: Candidates = None,
    count: RankCount = 10,
) -> RankedRelays:
    """Nodes by the metric of the path over each of them, the best first, and the path without a relay.

    Round-trip times add up, a bandwidth is the lower of both hops, losses combine.
    """
    request = inference_pb2.RankRelaysRequest(
        source_node=source, destination_node=destination, metric=metric, candidates=candidate or (), count=count
    )
    stub = inference_pb2_grpc.InferenceStub(_inference(gateway))
    with problems("inference"):
        answer = await stub.RankRelays(request)
    return mapping_sensing.ranked_relays(metric, answer)


@router.post("/sensing-runs", summary="Run a sensor once", responses=responses(400, 404, 409, 413), dependencies=[once])
async def run_once(body: RunBody, gateway: Context, principal: Operator) -> RunResults:
    """Shares a run that is under way; a stored result younger than the tolerance answers at once.

    A run for which the link's probing budget has no room is refused with the reason.
    """
    stub = await _pod(gateway, body.source_node, field="source_node")
    with problems(f"sensor pod of {body.source_node}"):
        answer = await stub.RunOnce(mapping_sensing.run_message(body, principal.subject), timeout=RUN_DEADLINE_S)
    return mapping_sensing.run_results(answer)


@router.get("/nodes/{id}/sensing-report", summary="Report of a node's sensor pod", responses=responses(404))
async def sensing_report(
    node_id: NodeIdPath,
    gateway: Context,
    _principal: AnyRole,
    skips: Annotated[int, Query(ge=1, le=10_000, description="Most skipped runs listed, newest first.")] = 100,
) -> SensingReport:
    """Counts of runs, probing budgets of links, and skipped runs with their reason."""
    stub = await _pod(gateway, node_id, field="id")
    with problems(f"sensor pod of {node_id}"):
        answer = await stub.Report(sensor_pod_pb2.ReportRequest(skips=skips))
    return mapping_sensing.report(answer)


def _inference(gateway: Gateway) -> aio.Channel:
    return gateway.backends.reach(gateway.settings.inference_target)


async def _pod(gateway: Gateway, node: str, *, field: str) -> sensor_pod_pb2_grpc.SensorPodAsyncStub:
    """The sensor pod of a node, at the configured sensor_pod_target."""
    for message, _ in await known_nodes(gateway):
        if message.id != node:
            continue
        if not message.sensor_pod_target:
            words = f"Node {node} has no sensor pod."
            raise ProblemError(404, "Not found", words, field=field, suggestions=["Set its sensor_pod_target."])
        channel = gateway.backends.reach_pod(node, message.sensor_pod_target)
        return sensor_pod_pb2_grpc.SensorPodStub(channel)
    raise ProblemError(404, "Not found", f"Node {node} does not exist.", field=field)
