"""/v1/tenants: which ends of flows belong to whom; configured by operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from chart.common.problems import ProblemError
from chart.common.tokens import Principal
from chart.gateway import tenant_mapping
from chart.gateway.auth import Operator, require
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IfMatch, Limit, expected_revision, page, tag
from chart.gateway.schemas.common import NODE_ID_PATTERN
from chart.gateway.schemas.tenants import Tenant, TenantBody, TenantPage
from chart.v1 import registry_pb2, tenant_pb2

router = APIRouter(prefix="/v1", tags=["policy"], responses=responses(401, 403, 422, 429, 500, 503))

# Applications learn what is theirs from refusals; what is another's is not for them.
Reader = Annotated[Principal, require("viewer", "operator", "admin")]
TenantId = Annotated[
    str,
    Path(
        alias="id",
        pattern=NODE_ID_PATTERN,
        max_length=63,
        description="Chosen by the caller; `default` exists from the start, for who belongs to no other.",
        examples=["shop"],
    ),
]


async def _tenants(gateway: Gateway) -> list[tenant_pb2.Tenant]:
    with problems("registry"):
        answer = await gateway.backends.registry.ListTenants(registry_pb2.ListTenantsRequest())
    return list(answer.tenants)


@router.get("/tenants", summary="List tenants")
async def list_tenants(gateway: Context, _principal: Reader, limit: Limit = 1000, cursor: Cursor = None) -> TenantPage:
    """By id."""
    shown, next_cursor = page(await _tenants(gateway), lambda one: one.id, limit, cursor)
    return TenantPage(items=[tenant_mapping.tenant(one) for one in shown], next_cursor=next_cursor)


@router.get("/tenants/{id}", summary="One tenant", responses=responses(404))
async def get_tenant(tenant_id: TenantId, response: Response, gateway: Context, _principal: Reader) -> Tenant:
    """Its members and what it owns."""
    for one in await _tenants(gateway):
        if one.id == tenant_id:
            tag(response, one.revision)
            return tenant_mapping.tenant(one)
    raise ProblemError(404, "Not found", f"Tenant {tenant_id} does not exist.", field="id")


@router.put(
    "/tenants/{id}",
    summary="Set a tenant",
    responses={**responses(400, 409, 412, 413), 201: {"model": Tenant, "description": "Created."}},
)
async def put_tenant(
    tenant_id: TenantId,
    body: TenantBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> Tenant:
    """Holds for requests and changes from now on; what was granted stays until its end."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {one.id: one.revision for one in await _tenants(gateway)}.get(tenant_id)
    call = registry_pb2.PutTenantRequest(
        tenant=tenant_mapping.tenant_message(tenant_id, body), expected_revision=expected_revision(if_match, current)
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutTenant(call, metadata=acting(principal.subject))
    tag(response, answer.tenant.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/tenants/{tenant_id}"
    return tenant_mapping.tenant(answer.tenant)


@router.delete("/tenants/{id}", status_code=204, summary="Remove a tenant", responses=responses(404))
async def delete_tenant(tenant_id: TenantId, gateway: Context, principal: Operator) -> None:
    """Its members belong to the tenant `default` from then on, which cannot be removed."""
    call = registry_pb2.DeleteTenantRequest(id=tenant_id)
    with problems("registry"):
        await gateway.backends.registry.DeleteTenant(call, metadata=acting(principal.subject))
