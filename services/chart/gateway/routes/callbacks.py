"""/v1/callbacks and /v1/callback-secret: callbacks to applications and the secret that signs them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from chart.gateway import reservation_mapping
from chart.gateway.auth import AnyRole, Asker
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, Limit
from chart.gateway.once import OnceRoute, once
from chart.gateway.routes.rate_requests import owner_filter
from chart.gateway.schemas.common import timestamp
from chart.gateway.schemas.rate_requests import Callback, CallbackPage, CallbackSecret, CallbackState
from chart.v1 import rate_request_pb2, reservations_pb2

router = APIRouter(
    prefix="/v1", tags=["callbacks"], responses=responses(401, 403, 422, 429, 500, 503), route_class=OnceRoute
)

CallbackId = Annotated[
    str,
    Path(
        alias="id",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Id of the callback.",
        examples=["msg_01KAJ3Z0Q3D5X6W5K3T4Z8Y7VN"],
    ),
]


@router.get("/callbacks", summary="List callbacks", responses=responses(404))
async def list_callbacks(
    gateway: Context,
    principal: AnyRole,
    request: Annotated[
        str | None, Query(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Only callbacks of this rate request.")
    ] = None,
    state: Annotated[CallbackState | None, Query(description="Only items in this state.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> CallbackPage:
    """Newest first. DEAD: delivery was given up after 24 h."""
    call = reservations_pb2.ListCallbacksRequest(
        request_id=request or "",
        owner=owner_filter(principal, reading=True),
        state=rate_request_pb2.CallbackState.Value(f"CALLBACK_STATE_{state or 'UNSPECIFIED'}"),
        page_size=limit,
        cursor=cursor or "",
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.ListCallbacks(call)
    items = [reservation_mapping.callback(one) for one in answer.callbacks]
    return CallbackPage(items=items, next_cursor=answer.next_cursor or None)


@router.post(
    "/callbacks/{id}/retry",
    summary="Send a callback again",
    responses=responses(404, 409, 413),
    dependencies=[once],
)
async def retry_callback(callback_id: CallbackId, gateway: Context, principal: Asker) -> Callback:
    """In any state, also DEAD or DELIVERED."""
    call = reservations_pb2.RetryCallbackRequest(id=callback_id, owner=owner_filter(principal, reading=False))
    with problems("reservations"):
        answer = await gateway.backends.reservations.RetryCallback(call, metadata=acting(principal.subject))
    return reservation_mapping.callback(answer.callback)


@router.get("/callback-secret", summary="The secret that your callbacks are signed with")
async def get_callback_secret(gateway: Context, principal: Asker) -> CallbackSecret:
    """The caller's secret. docs/applications.md shows how to check a signature."""
    return await _secret(gateway, principal.subject, rotate=False)


@router.post("/callback-secret", summary="Replace the secret", responses=responses(409, 413), dependencies=[once])
async def replace_callback_secret(gateway: Context, principal: Asker) -> CallbackSecret:
    """Callbacks are signed with the old and the new secret for 24 h."""
    return await _secret(gateway, principal.subject, rotate=True)


async def _secret(gateway: Context, owner: str, *, rotate: bool) -> CallbackSecret:
    call = reservations_pb2.GetCallbackSecretRequest(owner=owner, rotate=rotate)
    with problems("reservations"):
        answer = await gateway.backends.reservations.GetCallbackSecret(call, metadata=acting(owner))
    return CallbackSecret(secret=answer.secret, created_at=timestamp(answer.created_at_us))
