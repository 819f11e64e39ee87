"""/v1/tunnels: settings and state of elastic tunnels."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from chart.gateway import tunnel_mapping
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IfMatch, Limit, expected_revision, page, tag
from chart.gateway.schemas.common import LABEL_PATTERN
from chart.gateway.schemas.tunnels import TunnelBody, TunnelDetail, TunnelPage
from chart.v1 import tunnels_pb2

router = APIRouter(prefix="/v1", tags=["tunnels"], responses=responses(401, 403, 422, 429, 500, 503))

TunnelId = Annotated[
    str,
    Path(
        alias="id",
        pattern=LABEL_PATTERN,
        max_length=63,
        description="Name of the tunnel, as given to its origin.",
        examples=["gold"],
    ),
]


async def _get(gateway: Gateway, tunnel_id: str) -> tunnels_pb2.Tunnel:
    with problems("tunnels"):
        answer = await gateway.backends.tunnels.GetTunnel(tunnels_pb2.GetTunnelRequest(tunnel=tunnel_id))
    return answer.tunnel


@router.get("/tunnels", summary="List tunnels")
async def list_tunnels(gateway: Context, _principal: AnyRole, limit: Limit = 1000, cursor: Cursor = None) -> TunnelPage:
    """By id: tunnels that report and tunnels with settings."""
    with problems("tunnels"):
        answer = await gateway.backends.tunnels.ListTunnels(tunnels_pb2.ListTunnelsRequest())
    shown, next_cursor = page(list(answer.tunnels), lambda one: one.tunnel, limit, cursor)
    return TunnelPage(items=[tunnel_mapping.tunnel(one) for one in shown], next_cursor=next_cursor)


@router.get("/tunnels/{id}", summary="One tunnel", responses=responses(404))
async def get_tunnel(tunnel_id: TunnelId, response: Response, gateway: Context, _principal: AnyRole) -> TunnelDetail:
    """With settling time, overshoot, steady-state error and changes of each step, and its last periods."""
    found = await _get(gateway, tunnel_id)
    if found.HasField("settings"):
        tag(response, found.settings.revision)
    return tunnel_mapping.detail(found)


@router.put(
    "/tunnels/{id}",
    summary="Set a tunnel's target and controller",
    responses={**responses(400, 409, 412, 413), 201: {"model": TunnelDetail, "description": "Created."}},
)
async def put_tunnel(
    tunnel_id: TunnelId,
    body: TunnelBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> TunnelDetail:
    """Target, schedule, controller and weights of customers; in force from the next control period."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        with problems("tunnels"):
            known = await gateway.backends.tunnels.ListTunnels(tunnels_pb2.ListTunnelsRequest())
        stated = {one.tunnel: one.settings.revision for one in known.tunnels if one.HasField("settings")}
        current = stated.get(tunnel_id)
    call = tunnels_pb2.PutTunnelSettingsRequest(
        settings=tunnel_mapping.settings_message(tunnel_id, body),
        expected_revision=expected_revision(if_match, current),
    )
    with problems("tunnels"):
        answer = await gateway.backends.tunnels.PutTunnelSettings(call, metadata=acting(principal.subject))
    tag(response, answer.settings.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/tunnels/{tunnel_id}"
    return tunnel_mapping.detail(await _get(gateway, tunnel_id))


@router.delete("/tunnels/{id}", status_code=204, summary="Stop controlling a tunnel", responses=responses(404, 409))
async def delete_tunnel(tunnel_id: TunnelId, gateway: Context, principal: Operator) -> None:
    """Its settings are removed. When its lease expires the tunnel shrinks to one connection."""
    with problems("tunnels"):
        await gateway.backends.tunnels.DeleteTunnelSettings(
            tunnels_pb2.DeleteTunnelSettingsRequest(tunnel=tunnel_id), metadata=acting(principal.subject)
        )
