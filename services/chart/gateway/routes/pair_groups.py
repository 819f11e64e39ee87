"""/v1/pair-groups: pairs that are looked at together, their series, history as a file, and a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from chart.common.problems import ProblemError
from chart.common.tokens import IssuerAwayError, Principal, TokenError
from chart.gateway.auth import AnyRole, Asker, token_of
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import GatewayError, forbidden, responses
from chart.gateway.http import IfMatch, expected_revision, tag
from chart.gateway.routes.files import FILE_RESPONSES, file_of
from chart.gateway.routes.snapshots import From, Until, time_range
from chart.gateway.schemas import pair_groups
from chart.gateway.schemas.common import LABEL_PATTERN, timestamp
from chart.gateway.schemas.sensing import FileFormat
from chart.v1 import archive_pb2

router = APIRouter(prefix="/v1", tags=["history"], responses=responses(401, 403, 422, 429, 500, 503))

GroupId = Annotated[
    str, Path(alias="id", pattern=LABEL_PATTERN, max_length=63, description="DNS label.", examples=["branches"])
]
MetricName = Annotated[str, Query(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])]
DOWNLOAD_LIMIT_S = 600.0
MINUTE_US = 60_000_000
# A minute is sent when its roll-ups can be expected to be there.
SETTLED_US = 15_000_000
LOOK_EVERY_S = 5.0
MAX_WATCHERS = 200


async def _found(gateway: Gateway, identity: str) -> archive_pb2.PairGroup:
    with problems("archiver"):
        answer = await gateway.backends.archive.ListPairGroups(archive_pb2.ListPairGroupsRequest(id=identity))
    if not answer.groups:
        raise ProblemError(404, "Not found", f"Group of pairs {identity} does not exist.", field="id")
    return answer.groups[0]


async def _check_owner(gateway: Gateway, identity: str, principal: Principal, *, may_be_new: bool) -> None:
    """Refuse applications the groups of others."""
    try:
        known = await _found(gateway, identity)
    except ProblemError as error:
        # An archiver that is away has not said that the group is new.
        if error.status != 404 or not may_be_new:
            raise
        return
    if not principal.acts_for_all and known.owner != principal.subject:
        raise forbidden(f"group {identity} belongs to {known.owner}", roles=("operator", "admin"))


def _group(message: archive_pb2.PairGroup) -> pair_groups.PairGroup:
    return pair_groups.PairGroup(
        id=message.id,
        revision=message.revision,
        description=message.description,
        source_nodes=list(message.source_nodes),
        destination_nodes=list(message.destination_nodes),
        pairs=[
            pair_groups.NodePair(source_node=one.source_node, destination_node=one.destination_node)
            for one in message.pairs
        ],
        owner=message.owner,
    )


def _series(message: archive_pb2.QueryPairsResponse) -> pair_groups.PairSeries:
    return pair_groups.PairSeries(
        source_node=message.source_node or None,
        destination_node=message.destination_node or None,
        unit=message.unit,
        at=[timestamp(at_us) for at_us in message.at_us],
        mean=list(message.mean),
        minimum=list(message.minimum),
        maximum=list(message.maximum),
        count=list(message.count),
        p50=list(message.p50),
        p95=list(message.p95),
        pairs=list(message.pairs),
    )


@router.get("/pair-groups", summary="Groups of pairs")
async def list_pair_groups(gateway: Context, _principal: AnyRole) -> pair_groups.PairGroups:
    """By id."""
    with problems("archiver"):
        answer = await gateway.backends.archive.ListPairGroups(archive_pb2.ListPairGroupsRequest())
    return pair_groups.PairGroups(items=[_group(one) for one in answer.groups])


@router.get("/pair-groups/{id}", summary="One group of pairs", responses=responses(404))
async def get_pair_group(
    group_id: GroupId, response: Response, gateway: Context, _principal: AnyRole
) -> pair_groups.PairGroup:
    """Its sources, destinations and single pairs."""
    found = await _found(gateway, group_id)
    tag(response, found.revision)
    return _group(found)


@router.put(
    "/pair-groups/{id}",
    summary="Set a group of pairs",
    responses={
        **responses(400, 409, 412, 413),
        201: {"model": pair_groups.PairGroup, "description": "Created."},
    },
)
async def put_pair_group(
    group_id: GroupId,
    body: pair_groups.PairGroupBody,
    response: Response,
    gateway: Context,
    principal: Asker,
    if_match: IfMatch = None,
) -> pair_groups.PairGroup:
    """A group belongs to whoever sets it first; only they and operators change it."""
    await _check_owner(gateway, group_id, principal, may_be_new=True)
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = (await _found(gateway, group_id)).revision
    call = archive_pb2.PutPairGroupRequest(
        group=archive_pb2.PairGroup(
            id=group_id,
            description=body.description,
            source_nodes=body.source_nodes,
            destination_nodes=body.destination_nodes,
            pairs=[
                archive_pb2.NodePair(source_node=one.source_node, destination_node=one.destination_node)
                for one in body.pairs
            ],
            owner=principal.subject,
        ),
        expected_revision=expected_revision(if_match, current),
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.PutPairGroup(call, metadata=acting(principal.subject))
    tag(response, answer.group.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/pair-groups/{group_id}"
    return _group(answer.group)


@router.delete("/pair-groups/{id}", status_code=204, summary="Remove a group of pairs", responses=responses(404))
async def delete_pair_group(group_id: GroupId, gateway: Context, principal: Asker) -> None:
    """What was measured stays."""
    await _check_owner(gateway, group_id, principal, may_be_new=False)
    with problems("archiver"):
        await gateway.backends.archive.DeletePairGroup(
            archive_pb2.DeletePairGroupRequest(id=group_id), metadata=acting(principal.subject)
        )


@router.get("/pair-groups/{id}/series", summary="Series of a group of pairs", responses=responses(404))
async def pair_group_series(
    group_id: GroupId,
    gateway: Context,
    _principal: AnyRole,
    metric: MetricName,
    start: From = None,
    until: Until = None,
    step_ms: Annotated[
        int,
        Query(ge=0, le=86_400_000, description="Whole minutes; 0: the least with at most 1000 steps."),
    ] = 0,
    by_pair: Annotated[bool, Query(description="One series for each pair instead of one of all of them.")] = False,
) -> pair_groups.PairSeriesList:
    """From roll-ups, a few seconds behind the measurements; default: the last day."""
    span = time_range(start, until)
    call = archive_pb2.QueryPairsRequest(
        group=group_id,
        metric=metric,
        step_ms=step_ms,
        by_pair=by_pair,
        from_us=span["from_us"],
        until_us=span["until_us"],
    )
    with problems("archiver"):
        items = [_series(one) async for one in gateway.backends.archive.QueryPairs(call)]
    return pair_groups.PairSeriesList(items=items)


@router.get(
    "/pair-groups/{id}/history",
    summary="History of a group of pairs as a file",
    response_class=Response,
    responses=FILE_RESPONSES,
)
async def pair_group_history(
    group_id: GroupId,
    gateway: Context,
    _principal: AnyRole,
    metric: MetricName,
    start: From = None,
    until: Until = None,
    resolution: pair_groups.HistoryResolution = "measurement",
    file_format: Annotated[FileFormat, Query(alias="format")] = "parquet",
) -> Response:
    """Single results, minutes or hours, pair by pair, oldest first; sent while it is read. Default: the last day."""
    span = time_range(start, until)
    call = archive_pb2.DownloadHistoryRequest(
        group=group_id,
        metric=metric,
        resolution=archive_pb2.HistoryResolution.Value(f"HISTORY_RESOLUTION_{resolution.upper()}"),
        format=archive_pb2.SnapshotFormat.Value(f"SNAPSHOT_FORMAT_{file_format.upper()}"),
        from_us=span["from_us"],
        until_us=span["until_us"],
    )
    return await file_of(gateway.backends.archive.DownloadHistory(call, timeout=DOWNLOAD_LIMIT_S), file_format)


@router.get(
    "/pair-groups/{id}/events",
    summary="Subscription to a group of pairs",
    response_class=StreamingResponse,
    responses={
        **responses(404),
        200: {"description": "The stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
    },
)
async def pair_group_events(
    group_id: GroupId, gateway: Context, request: Request, _principal: AnyRole, metric: MetricName
) -> StreamingResponse:
    """Server-sent events `minute`: a PairSeries of all pairs with each whole minute that has results, within half a
    minute of its end. The stream ends with its token, or with `closed` when the group is removed."""
    await _found(gateway, group_id)
    if gateway.group_watchers >= MAX_WATCHERS:
        words = f"{MAX_WATCHERS} subscriptions to groups are open"
        raise GatewayError(503, "Service unavailable", words, headers={"Retry-After": "10"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    sending = _minutes(gateway, group_id, metric, token_of(request))
    return StreamingResponse(sending, media_type="text/event-stream", headers=headers)


async def _minutes(gateway: Gateway, group_id: str, metric: str, token: str) -> AsyncIterator[str]:
    gateway.group_watchers += 1
    try:
        next_us = _settled_us(gateway)
        yield ": subscribed\n\n"
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await gateway.verifier.verify(token)
                await gateway.introspection.refuse(token)
            except TokenError as error:
                yield _event("closed", f'{{"reason": "{type(error).__name__}: come back with another token"}}')
                return
            except IssuerAwayError:
                continue
            until_us = _settled_us(gateway)
            if until_us <= next_us:
                yield ": \n\n"
                continue
            call = archive_pb2.QueryPairsRequest(
                group=group_id, metric=metric, step_ms=MINUTE_US // 1000, from_us=next_us, until_us=until_us
            )
            try:
                with problems("archiver"):
                    found = [_series(one) async for one in gateway.backends.archive.QueryPairs(call)]
            except ProblemError as error:
                if error.status == 404:
                    yield _event("closed", '{"reason": "the group was removed"}')
                    return
                # The archiver is away: these minutes come when it is back.
                continue
            next_us = until_us
            for one in found:
                yield _event("minute", one.model_dump_json())
    finally:
        gateway.group_watchers -= 1


def _settled_us(gateway: Gateway) -> int:
    """End of the last whole minute whose roll-ups are there."""
    return (gateway.clock.now_us() - SETTLED_US) // MINUTE_US * MINUTE_US


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
