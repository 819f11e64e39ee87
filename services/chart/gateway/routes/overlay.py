"""/v1/overlay: routes of overlay nodes, where packets go and why, and what happened to links and paths."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from chart.common import names
from chart.common.problems import ProblemError
from chart.gateway import overlay, overlay_mapping
from chart.gateway.auth import AnyRole
from chart.gateway.backends import problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.routes.nodes import NodeIdPath
from chart.gateway.schemas import overlay as schemas
from chart.gateway.schemas.common import LINK_ID_PATTERN, NODE_ID_PATTERN, InputTimestamp, microseconds, timestamp
from chart.v1 import archive_pb2

router = APIRouter(prefix="/v1/overlay", tags=["overlay"], responses=responses(401, 403, 422, 429, 500, 503))

At = Annotated[InputTimestamp | None, Query(description="A time of the past; null: now.")]
NodeFilter = Annotated[str, Query(pattern=rf"{NODE_ID_PATTERN}|^$", max_length=names.NODE_LENGTH_MAX)]


async def _view(gateway: Gateway, at: datetime | None) -> overlay.View:
    now_us = gateway.clock.now_us()
    if at is None:
        return gateway.live.overlay(now_us)
    at_us = microseconds(at)
    if not 0 < at_us <= now_us:
        raise ProblemError(422, "Invalid request", "at: must be a time of the past.", field="at", kind="invalid-value")
    with problems("archiver"):
        answer = await gateway.backends.archive.GetOverlayAt(archive_pb2.GetOverlayAtRequest(at_us=at_us))
    return overlay.past_view(answer, at_us)


@router.get("/routes/{id}", summary="Routes of an overlay node", responses=responses(404))
async def get_overlay_routes(
    node_id: NodeIdPath, gateway: Context, _principal: AnyRole, at: At = None
) -> schemas.OverlayRoutes:
    """Its path table: for each other overlay node the next hops by colour, with how they are."""
    view = await _view(gateway, at)
    table = view.tables.get(node_id)
    if table is None:
        raise ProblemError(
            404,
            "Not found",
            f"Node {node_id} has no path table: it has no part in the overlay, or no overlay links.",
            field="id",
            suggestions=sorted(view.tables),
        )
    return overlay_mapping.routes(view, table)


@router.get("/trace/{source}/{destination}", summary="Where packets go, and why")
async def get_overlay_trace(
    source: Annotated[
        str,
        Path(
            pattern=NODE_ID_PATTERN,
            max_length=names.NODE_LENGTH_MAX,
            description="The overlay node at which they enter.",
            examples=["alpha"],
        ),
    ],
    destination: Annotated[
        str,
        Path(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$|^::[A-Fa-f0-9:.]*$",
            max_length=names.NODE_LENGTH_MAX,
            description="Another overlay node, or an address.",
            examples=["10.20.0.5"],
        ),
    ],
    gateway: Context,
    _principal: AnyRole,
    at: At = None,
) -> schemas.OverlayTrace:
    """Every path of the overlay from a node to a destination, hop by hop, as the nodes' kernels decide: which flows
    take it, which links are passed over and why. Packets to what is behind no overlay node take the kernel's routes.
    """
    view = await _view(gateway, at)
    table = view.tables.get(source)
    found = overlay.owner_of(table, destination) if table else None
    owner = found[0].node if found else None
    paths = overlay.trace(view, source, owner) if owner and owner != source else []
    return schemas.OverlayTrace(
        source=source,
        destination=destination,
        owner=owner,
        prefix=(found[1] or None) if found else None,
        at=timestamp(view.at_us),
        past=at is not None,
        paths=[overlay_mapping.traced(view, one, chosen=any(each.choice for each in paths)) for one in paths],
        why=overlay_mapping.why_of_all(view, source, owner, paths),
    )


@router.get("/events", summary="What happened to overlay links and paths")
async def list_overlay_events(
    gateway: Context,
    _principal: AnyRole,
    node: NodeFilter = "",
    link: Annotated[
        str, Query(pattern=rf"{LINK_ID_PATTERN}|^$", max_length=names.LINK_LENGTH_MAX, description="Id of a link.")
    ] = "",
    owner: Annotated[
        str,
        Query(pattern=rf"{NODE_ID_PATTERN}|^$", max_length=names.NODE_LENGTH_MAX, description="Where paths lead to."),
    ] = "",
    of: Annotated[
        Literal["links", "paths"] | None, Query(description="Only of links, with starts, or only of paths; null: both.")
    ] = None,
    start: Annotated[InputTimestamp | None, Query(alias="from", description="Default: a day before until.")] = None,
    until: Annotated[InputTimestamp | None, Query(description="Default: now.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> schemas.OverlayEventList:
    """Failures and returns of links and paths, paths that flows left because they became worse, and starts of the
    overlay; the newest first.
    """
    call = archive_pb2.ListOverlayEventsRequest(
        node=node,
        link_id=link,
        owner=owner,
        of=of or "",
        from_us=microseconds(start) if start else 0,
        until_us=microseconds(until) if until else 0,
        limit=limit,
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.ListOverlayEvents(call)
    return schemas.OverlayEventList(items=[overlay_mapping.event(one) for one in answer.events])
