"""/v1/rate-requests: request a rate, follow it, release it."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Annotated, Protocol

from fastapi import APIRouter, Path, Query, Response
from pydantic import StringConstraints
from ulid import ULID

from chart.common import names
from chart.common.problems import ProblemError
from chart.common.tokens import Principal
from chart.gateway import reservation_mapping
from chart.gateway.auth import AnyRole, Asker
from chart.gateway.backends import acting, caller_of, problems
from chart.gateway.context import Context
from chart.gateway.errors import responses
from chart.gateway.http import (
    Cursor,
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Limit,
    expected_revision,
    not_modified,
    tag,
)
from chart.gateway.once import OnceRoute, once
from chart.gateway.schemas.common import LINK_ID_PATTERN, InputTimestamp, microseconds
from chart.gateway.schemas.rate_requests import (
    CallbackState,
    Enforcement,
    Lifecycle,
    Preview,
    RateRequest,
    RateRequestBody,
    RateRequestChange,
    RateRequestPage,
    Receipt,
    ServiceState,
)
from chart.v1 import rate_request_pb2, reservations_pb2

router = APIRouter(
    prefix="/v1",
    tags=["rate requests"],
    responses=responses(401, 403, 422, 429, 500, 503),
    route_class=OnceRoute,
)

RequestId = Annotated[
    str,
    Path(
        alias="id",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Id of the rate request.",
        examples=["01KAJ3Z0Q3D5X6W5K3T4Z8Y7VN"],
    ),
]
# One revision, as its entity tag; a 64-bit number.
REVISION_TAG = re.compile(r'(?:W/)?"(\d{1,18})"')
# What a call may take beside its waiting.
WAIT_MARGIN_S = 5.0
TagFilter = Annotated[str, StringConstraints(min_length=1, max_length=321)]
_HEADERS = {
    "ETag": {"description": "The revision.", "schema": {"type": "string"}},
    "Location": {"description": "URL of the request.", "schema": {"type": "string"}},
    "Idempotency-Replayed": {
        "description": "true: this is the first response, repeated.",
        "schema": {"type": "string"},
    },
}
_TAGGED = {"headers": {"ETag": _HEADERS["ETag"]}}
_TAGGED_ONCE = {"headers": {name: _HEADERS[name] for name in ("ETag", "Idempotency-Replayed")}}


class _Answer(Protocol):
    """What calls about one request are answered with."""

    @property
    def rate_request(self) -> rate_request_pb2.RateRequest:
        """As it is now."""
        ...


async def _changed(response: Response, call: Awaitable[_Answer]) -> RateRequest:
    """The request as a call leaves it, with its entity tag."""
    with problems("reservations"):
        answer = await call
    found = reservation_mapping.rate_request(answer.rate_request)
    tag(response, found.revision)
    return found


def owner_filter(principal: Principal, *, reading: bool) -> str:
    """Whose requests may be touched: an application's own, of people everybody's ("")."""
    everybody = principal.sees_all if reading else principal.acts_for_all
    return "" if everybody else principal.subject


@router.post(
    "/rate-requests",
    status_code=201,
    summary="Request a rate",
    responses={**responses(400, 409, 413), 201: {"headers": _HEADERS}},
)
async def create_rate_request(
    body: RateRequestBody,
    response: Response,
    gateway: Context,
    principal: Asker,
    idempotency_key: IdempotencyKey = None,
) -> RateRequest:
    """Commits at once: 201 means that the rate is reserved on every link of the path. Whether the nodes enforce it
    is shown by `enforcement`: PENDING, then ENFORCED within a second; follow it with GET or on /v1/events.
    """
    call = reservations_pb2.CreateRateRequestRequest(
        specification=reservation_mapping.specification(body),
        owner=principal.subject,
        # With a key of our own the call below may be repeated safely when an answer got lost.
        idempotency_key=idempotency_key or str(ULID()),
        caller=caller_of(principal),
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.CreateRateRequest(call, metadata=acting(principal.subject))
    created = reservation_mapping.rate_request(answer.rate_request)
    tag(response, created.revision)
    response.headers["Location"] = f"/v1/rate-requests/{created.id}"
    if answer.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return created


@router.post("/rate-requests:preview", summary="Preview a request", responses=responses(400, 413))
async def preview_rate_request(body: RateRequestBody, gateway: Context, principal: Asker) -> Preview:
    """The outcome that POST would have now; nothing is committed."""
    call = reservations_pb2.PreviewRateRequestRequest(
        specification=reservation_mapping.specification(body), owner=principal.subject, caller=caller_of(principal)
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.PreviewRateRequest(call)
    return reservation_mapping.preview(answer)


@router.get("/rate-requests", summary="List rate requests")
async def list_rate_requests(
    gateway: Context,
    principal: AnyRole,
    lifecycle: Annotated[Lifecycle | None, Query(description="Only items in this state.")] = None,
    enforcement: Annotated[Enforcement | None, Query(description="Only items in this state.")] = None,
    service_state: Annotated[ServiceState | None, Query(description="Only items in this state.")] = None,
    callback_state: Annotated[CallbackState | None, Query(description="Only items in this state.")] = None,
    tags: Annotated[
        list[TagFilter] | None,
        Query(alias="tag", max_length=8, description="Only requests with this tag: name=value, or name for any value."),
    ] = None,
    search: Annotated[
        str | None,
        Query(
            alias="q",
            min_length=1,
            max_length=200,
            description="Text in id, owner, source, destination, description or tags, ignoring case.",
        ),
    ] = None,
    link: Annotated[
        str | None,
        Query(
            pattern=LINK_ID_PATTERN,
            max_length=names.LINK_LENGTH_MAX,
            description="Only requests with this link in their path.",
        ),
    ] = None,
    owner: Annotated[
        str | None,
        Query(min_length=1, max_length=128, description="Only requests of this owner (ignored for applications)."),
    ] = None,
    updated_since: Annotated[
        InputTimestamp | None, Query(description="Only requests that changed since this time.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> RateRequestPage:
    """Newest first. An application sees its own, people see all."""
    mine = owner_filter(principal, reading=True)
    if any("\x00" in text for text in (search or "", owner or "", *(tags or ()))):
        raise ProblemError(422, "Invalid request", "a filter must not contain NUL", field="q", kind="invalid-value")
    states = rate_request_pb2
    pairs = [text.partition("=") for text in tags or ()]
    call = reservations_pb2.ListRateRequestsRequest(
        owner=mine or owner or "",
        enforcement=states.Enforcement.Value(f"ENFORCEMENT_{enforcement or 'UNSPECIFIED'}"),
        service_state=states.ServiceState.Value(f"SERVICE_STATE_{service_state or 'UNSPECIFIED'}"),
        callback_state=states.CallbackState.Value(f"CALLBACK_STATE_{callback_state or 'UNSPECIFIED'}"),
        tags={name: value for name, _, value in pairs},
        search=search or "",
        link_id=link or "",
        updated_since_us=microseconds(updated_since) if updated_since else 0,
        lifecycle=rate_request_pb2.Lifecycle.Value(f"LIFECYCLE_{lifecycle or 'UNSPECIFIED'}"),
        page_size=limit,
        cursor=cursor or "",
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.ListRateRequests(call)
    items = [reservation_mapping.rate_request(item) for item in answer.rate_requests]
    return RateRequestPage(items=items, next_cursor=answer.next_cursor or None)


@router.get(
    "/rate-requests/{id}",
    summary="One rate request",
    responses={**responses(404), 200: _TAGGED, 304: {"description": "Not modified."}},
    response_model=RateRequest,
)
async def get_rate_request(
    request_id: RequestId,
    response: Response,
    gateway: Context,
    principal: AnyRole,
    if_none_match: IfNoneMatch = None,
    wait_s: Annotated[
        float,
        Query(
            ge=0, le=10, description="With If-None-Match: seconds to wait for another revision before responding 304."
        ),
    ] = 0,
) -> RateRequest | Response:
    """With the status from every node on its path."""
    call = reservations_pb2.GetRateRequestRequest(id=request_id, owner=owner_filter(principal, reading=True))
    timeout_s = None
    known = None if if_none_match is None else REVISION_TAG.fullmatch(if_none_match.strip())
    if known is not None and wait_s:
        call.wait_us, call.known_revision = round(wait_s * 1e6), int(known[1])
        timeout_s = wait_s + WAIT_MARGIN_S
    with problems("reservations"):
        answer = await gateway.backends.reservations.GetRateRequest(call, timeout=timeout_s)
    found = reservation_mapping.rate_request(answer.rate_request)
    if not_modified(if_none_match, found.revision):
        return Response(status_code=304, headers={"ETag": f'"{found.revision}"'})
    tag(response, found.revision)
    return found


@router.post(
    "/rate-requests/{id}/release",
    summary="Release a request",
    responses={**responses(404, 409, 413), 200: _TAGGED_ONCE},
    dependencies=[once],
)
async def release_rate_request(
    request_id: RequestId, response: Response, gateway: Context, principal: Asker
) -> RateRequest:
    """Its flows continue under the default congestion control. Releasing again has no effect."""
    call = reservations_pb2.ReleaseRateRequestRequest(id=request_id, owner=owner_filter(principal, reading=False))
    reservations = gateway.backends.reservations
    return await _changed(response, reservations.ReleaseRateRequest(call, metadata=acting(principal.subject)))


@router.post(
    "/rate-requests/{id}/commit",
    summary="Commit a held request",
    responses={**responses(404, 409, 413), 200: _TAGGED_ONCE},
    dependencies=[once],
)
async def commit_rate_request(
    request_id: RequestId, response: Response, gateway: Context, principal: Asker
) -> RateRequest:
    """The rate is in force from the start of the request. Committing again has no effect; a hold ends after 900 s."""
    call = reservations_pb2.CommitRateRequestRequest(id=request_id, owner=owner_filter(principal, reading=False))
    reservations = gateway.backends.reservations
    return await _changed(response, reservations.CommitRateRequest(call, metadata=acting(principal.subject)))


@router.patch(
    "/rate-requests/{id}",
    summary="Change a request",
    responses={**responses(400, 404, 409, 412, 413), 200: _TAGGED},
)
async def change_rate_request(
    request_id: RequestId,
    body: RateRequestChange,
    response: Response,
    gateway: Context,
    principal: Asker,
    if_match: IfMatch = None,
) -> RateRequest:
    """Changes rate, end, priority, tags or description; the flow keeps running. A refusal changes nothing."""
    # With *, any revision will do: one that is not there is not found.
    revision = 0 if if_match is None or if_match.strip() == "*" else expected_revision(if_match, None)
    call = reservation_mapping.change(
        request_id, owner_filter(principal, reading=False), revision, body, look_only=False
    )
    call.caller.CopyFrom(caller_of(principal))
    reservations = gateway.backends.reservations
    return await _changed(response, reservations.ChangeRateRequest(call, metadata=acting(principal.subject)))


@router.post("/rate-requests/{id}/preview", summary="Preview a change", responses=responses(400, 404, 409, 413))
async def preview_change(request_id: RequestId, body: RateRequestChange, gateway: Context, principal: Asker) -> Preview:
    """The outcome that PATCH would have now; nothing is changed."""
    call = reservation_mapping.change(request_id, owner_filter(principal, reading=False), 0, body, look_only=True)
    call.caller.CopyFrom(caller_of(principal))
    with problems("reservations"):
        answer = await gateway.backends.reservations.ChangeRateRequest(call, metadata=acting(principal.subject))
    return reservation_mapping.preview(answer.preview, f"/v1/rate-requests/{request_id}")


@router.get("/rate-requests/{id}/receipt", summary="Volumes granted and delivered", responses=responses(404))
async def get_receipt(request_id: RequestId, gateway: Context, principal: AnyRole) -> Receipt:
    """From the agents' counters; complete once the request has ended."""
    call = reservations_pb2.GetReceiptRequest(id=request_id, owner=owner_filter(principal, reading=True))
    with problems("reservations"):
        answer = await gateway.backends.reservations.GetReceipt(call)
    return reservation_mapping.receipt(answer)
