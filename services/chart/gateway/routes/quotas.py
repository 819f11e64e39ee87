"""/v1/quotas: quotas of applications."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from chart.common.problems import ProblemError
from chart.gateway import reservation_mapping
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IfMatch, Limit, expected_revision, page, tag
from chart.gateway.schemas.reservations import Quota, QuotaBody, QuotaPage
from chart.v1 import reservations_pb2

router = APIRouter(prefix="/v1", tags=["policy"], responses=responses(401, 403, 422, 429, 500, 503))

Application = Annotated[
    str,
    Path(
        alias="application",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:+-]{0,127}$",
        description="Subject of the application's token, or `default` for every one without a quota of its own.",
        examples=["my-application"],
    ),
]


async def _all(gateway: Gateway) -> list[Quota]:
    with problems("reservations"):
        answer = await gateway.backends.reservations.ListQuotas(reservations_pb2.ListQuotasRequest())
    return [
        reservation_mapping.quota(one, None if one.owner == "default" else use)
        for one, use in zip(answer.quotas, answer.uses, strict=True)
    ]


@router.get("/quotas", summary="List quotas")
async def list_quotas(gateway: Context, principal: AnyRole, limit: Limit = 1000, cursor: Cursor = None) -> QuotaPage:
    """By application. An application sees its own and the default one."""
    found = await _all(gateway)
    if not principal.sees_all:
        found = [one for one in found if one.application in ("default", principal.subject)]
    shown, next_cursor = page(found, lambda one: one.application, limit, cursor)
    return QuotaPage(items=shown, next_cursor=next_cursor)


@router.get("/quotas/{application}", summary="One quota", responses=responses(404))
async def get_quota(application: Application, response: Response, gateway: Context, principal: AnyRole) -> Quota:
    """With the application's current use."""
    for one in await _all(gateway):
        if one.application == application and (principal.sees_all or application in ("default", principal.subject)):
            tag(response, one.revision)
            return one
    raise ProblemError(
        404,
        "Not found",
        f"{application} has no quota of its own.",
        field="application",
        suggestions=["Without one, /v1/quotas/default applies, if it exists."],
    )


@router.put(
    "/quotas/{application}",
    summary="Set a quota",
    responses={**responses(400, 409, 412, 413), 201: {"model": Quota, "description": "Created."}},
)
async def put_quota(
    application: Application,
    body: QuotaBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> Quota:
    """Applies to new requests; granted requests keep their rate."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {one.application: one.revision for one in await _all(gateway)}.get(application)
    call = reservations_pb2.PutQuotaRequest(
        quota=reservation_mapping.quota_message(application, body),
        expected_revision=expected_revision(if_match, current),
    )
    with problems("reservations"):
        answer = await gateway.backends.reservations.PutQuota(call, metadata=acting(principal.subject))
    tag(response, answer.quota.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/quotas/{application}"
    return reservation_mapping.quota(answer.quota, None)


@router.delete("/quotas/{application}", status_code=204, summary="Remove a quota", responses=responses(404))
async def delete_quota(application: Application, gateway: Context, principal: Operator) -> None:
    """The default quota applies to the application again."""
    with problems("reservations"):
        await gateway.backends.reservations.DeleteQuota(
            reservations_pb2.DeleteQuotaRequest(owner=application), metadata=acting(principal.subject)
        )
