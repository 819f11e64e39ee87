"""/v1/paths and /v1/links/{id}/capacity: free rates of paths and commitments of links."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from chart.common import names
from chart.gateway import reservation_mapping
from chart.gateway.auth import AnyRole
from chart.gateway.backends import problems
from chart.gateway.context import Context
from chart.gateway.errors import responses
from chart.gateway.routes.links import LinkIdPath
from chart.gateway.schemas.common import NODE_ID_PATTERN, InputTimestamp, microseconds
from chart.gateway.schemas.reservations import LinkCapacity, PathList
from chart.v1 import reservations_pb2

router = APIRouter(prefix="/v1", tags=["network"], responses=responses(401, 403, 422, 429, 500, 503))

Start = Annotated[InputTimestamp | None, Query(alias="from", description="null: now.")]
Until = Annotated[InputTimestamp | None, Query(description="null: no end.")]


def _node(name: str) -> object:
    return Path(
        alias=name,
        pattern=NODE_ID_PATTERN,
        max_length=names.NODE_LENGTH_MAX,
        description="Id of a node.",
        examples=["alpha"],
    )


@router.get("/paths/{source}/{destination}", summary="Paths between two nodes")
async def list_paths(
    source: Annotated[str, _node("source")],
    destination: Annotated[str, _node("destination")],
    gateway: Context,
    _principal: AnyRole,
    start: Start = None,
    until: Until = None,
    avoid: Annotated[
        list[Annotated[str, Query(pattern=r"^[A-Za-z0-9_.@:-]{1,269}$")]] | None,
        Query(max_length=32, description="Ids of nodes and links that the paths must not use."),
    ] = None,
) -> PathList:
    """The one that a request gets first (where nodes report their routes, the one that packets take), then the
    shortest, the widest, that of fewest hops and a disjoint one, each with its free rate over the whole time range.
    """
    call = reservations_pb2.FindPathsRequest(
        source=source,
        destination=destination,
        start_us=microseconds(start) if start else 0,
        end_us=microseconds(until) if until else 0,
        avoid=avoid or [],
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.FindPaths(call)
    return PathList(items=[reservation_mapping.path(one) for one in answer.paths])


@router.get("/links/{id}/capacity", summary="Commitments of a link", responses=responses(404))
async def get_link_capacity(
    link_id: LinkIdPath, gateway: Context, _principal: AnyRole, start: Start = None, until: Until = None
) -> LinkCapacity:
    """Committed guaranteed and maximum rates and the free rate over a time range, as steps."""
    call = reservations_pb2.GetLinkCapacityRequest(
        link_id=link_id,
        start_us=microseconds(start) if start else 0,
        end_us=microseconds(until) if until else 0,
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.GetLinkCapacity(call)
    return reservation_mapping.capacity(link_id, answer)
