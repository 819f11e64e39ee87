"""/v1/rate-requests: ask for a rate, follow it, release it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from ulid import ULID

from chart.common.tokens import Principal
from chart.gateway import mapping
from chart.gateway.auth import AnyRole, Asker
from chart.gateway.backends import FIELDS, acting, problems
from chart.gateway.context import Context
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IdempotencyKey, IfNoneMatch, Limit, not_modified, tag
from chart.gateway.schemas.common import Problem
from chart.gateway.schemas.rate_requests import Lifecycle, Preview, RateRequest, RateRequestBody, RateRequestPage
from chart.v1 import rate_request_pb2, reservations_pb2

router = APIRouter(prefix="/v1", tags=["rate requests"], responses=responses(401, 403, 422, 429, 500, 503))

RequestId = Annotated[
    str,
    Path(
        alias="id",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Id of the rate request.",
        examples=["01KAJ3Z0Q3D5X6W5K3T4Z8Y7VN"],
    ),
]
_HEADERS = {
    "ETag": {"description": "The revision.", "schema": {"type": "string"}},
    "Location": {"description": "Where the request is.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {"description": "true: the first answer again.", "schema": {"type": "string"}},
}


def owner_filter(principal: Principal, *, reading: bool) -> str:
    """Whose requests may be touched: an application's own, of people everybody's ("")."""
    everybody = principal.sees_all if reading else principal.acts_for_all
    return "" if everybody else principal.subject


@router.post(
    "/rate-requests",
    status_code=201,
    summary="Ask for a rate",
    responses={**responses(400, 409, 413), 201: {"headers": _HEADERS}},
)
async def create_rate_request(
    body: RateRequestBody,
    response: Response,
    gateway: Context,
    principal: Asker,
    idempotency_key: IdempotencyKey = None,
) -> RateRequest:
    """Commits at once: 201 means that the rate is reserved on every link of the path. Whether the nodes enforce it is
    told by `enforcement`, which turns from PENDING to ENFORCED within a second; follow it with GET or on /v1/events.
    """
    call = reservations_pb2.CreateRateRequestRequest(
        specification=mapping.specification(body),
        owner=principal.subject,
        # With a key of our own the call below may be repeated safely when an answer got lost.
        idempotency_key=idempotency_key or str(ULID()),
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.CreateRateRequest(call, metadata=acting(principal.subject))
    created = mapping.rate_request(answer.rate_request)
    tag(response, created.revision)
    response.headers["Location"] = f"/v1/rate-requests/{created.id}"
    if answer.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return created


@router.post("/rate-requests:preview", summary="What a request would get", responses=responses(400, 413))
async def preview_rate_request(body: RateRequestBody, gateway: Context, principal: Asker) -> Preview:
    """The same answer that POST would give now, without committing anything."""
    call = reservations_pb2.PreviewRateRequestRequest(
        specification=mapping.specification(body), owner=principal.subject
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.PreviewRateRequest(call)
    refusal = None
    if not answer.granted:
        refusal = _refusal(answer.refusal)
    return Preview(
        granted=answer.granted,
        granted_bps=answer.granted_bps,
        path=list(answer.link_ids),
        bottleneck_link_id=answer.bottleneck_link_id or None,
        ceiling_bps=answer.ceiling_bps or None,
        refusal=refusal,
    )


# Refusals of a value, not of the moment: repeating the request later will not help.
_INVALID = frozenset({"invalid-value", "unknown-node", "above-policy-maximum"})


def _refusal(refusal: reservations_pb2.Refusal) -> Problem:
    """The problem document that committing would have answered with."""
    status = 422 if refusal.code in _INVALID else 409
    return Problem(
        type=f"urn:chart:problem:{refusal.code or 'refused'}",
        title="Invalid value" if status == 422 else "Refused",
        status=status,
        detail=refusal.detail or "reservations gave no reason",
        instance="/v1/rate-requests",
        field=FIELDS.get(refusal.field, refusal.field.removeprefix("selector.")) or None,
        floor=refusal.floor_bps or None,
        ceiling=refusal.ceiling_bps or None,
        suggestions=list(refusal.suggestions) or None,
    )


@router.get("/rate-requests", summary="List rate requests")
async def list_rate_requests(
    gateway: Context,
    principal: AnyRole,
    lifecycle: Annotated[Lifecycle | None, Query(description="Only those in this state.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> RateRequestPage:
    """Newest first. An application sees its own, people see all."""
    call = reservations_pb2.ListRateRequestsRequest(
        owner=owner_filter(principal, reading=True),
        lifecycle=rate_request_pb2.Lifecycle.Value(f"LIFECYCLE_{lifecycle or 'UNSPECIFIED'}"),
        page_size=limit,
        cursor=cursor or "",
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.ListRateRequests(call)
    items = [mapping.rate_request(item) for item in answer.rate_requests]
    return RateRequestPage(items=items, next_cursor=answer.next_cursor or None)


@router.get(
    "/rate-requests/{id}",
    summary="One rate request",
    responses={**responses(404), 200: {"headers": {"ETag": _HEADERS["ETag"]}}, 304: {"description": "Not modified."}},
    response_model=RateRequest,
)
async def get_rate_request(
    request_id: RequestId, response: Response, gateway: Context, principal: AnyRole, if_none_match: IfNoneMatch = None
) -> RateRequest | Response:
    """With the confirmations of every node on its path."""
    call = reservations_pb2.GetRateRequestRequest(id=request_id, owner=owner_filter(principal, reading=True))
    with problems("reservations"):
        answer = await gateway.backends.reservations.GetRateRequest(call)
    found = mapping.rate_request(answer.rate_request)
    if not_modified(if_none_match, found.revision):
        return Response(status_code=304, headers={"ETag": f'"{found.revision}"'})
    tag(response, found.revision)
    return found


@router.post(
    "/rate-requests/{id}/release",
    summary="Give the rate back",
    responses={**responses(404, 409, 413), 200: {"headers": {"ETag": _HEADERS["ETag"]}}},
)
async def release_rate_request(
    request_id: RequestId, response: Response, gateway: Context, principal: Asker
) -> RateRequest:
    """Its flows go on under the kernel's own congestion control. Releasing twice is the same as once."""
    call = reservations_pb2.ReleaseRateRequestRequest(id=request_id, owner=owner_filter(principal, reading=False))
    with problems("reservations"):
        answer = await gateway.backends.reservations.ReleaseRateRequest(call, metadata=acting(principal.subject))
    released = mapping.rate_request(answer.rate_request)
    tag(response, released.revision)
    return released
