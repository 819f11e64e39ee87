"""/v1/authorisations and signed receipts: what the authority says, for applications and people."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from chart.gateway.auth import AnyRole, Asker
from chart.gateway.context import Context
from chart.gateway.errors import responses
from chart.gateway.once import OnceRoute, once
from chart.gateway.schemas.authorisations import (
    Authorisation,
    AuthorisationBody,
    AuthorisationList,
    ReceiptKeys,
    SignedReceipt,
)

router = APIRouter(
    prefix="/v1", tags=["authorisations"], responses=responses(401, 403, 422, 429, 500, 503), route_class=OnceRoute
)

AuthorisationId = Annotated[str, Path(alias="id", pattern=r"^[0-9A-Za-z]{1,64}$")]


@router.post(
    "/authorisations",
    status_code=201,
    summary="Authorise an address",
    responses=responses(400, 409, 413),
    dependencies=[once],
)
async def create_authorisation(
    body: AuthorisationBody, request: Request, gateway: Context, principal: Asker
) -> Authorisation:
    """A time-bound grant for flows of an address, by the authority's policy for the caller. Elements at both ends of a
    path receive it at once; without one, in-band requests are best effort or refused.
    """
    stated = body.model_dump(mode="json", exclude_none=True)
    return _authorisation(await gateway.authority.ask("POST", "/v1/authorisations", request, stated))


@router.get("/authorisations", summary="List authorisations")
async def list_authorisations(request: Request, gateway: Context, principal: AnyRole) -> AuthorisationList:
    """The caller's own; operators see all."""
    found: Any = await gateway.authority.ask("GET", "/v1/authorisations", request)
    return AuthorisationList(items=[_authorisation(one) for one in found["authorisations"] if not one["removed"]])


@router.delete("/authorisations/{id}", status_code=204, summary="Revoke an authorisation", responses=responses(404))
async def delete_authorisation(
    identity: AuthorisationId, request: Request, gateway: Context, principal: Asker
) -> Response:
    """Running flows become best effort at the elements' next poll."""
    await gateway.authority.ask("DELETE", f"/v1/authorisations/{identity}", request)
    return Response(status_code=204)


@router.get("/receipts/{id}", summary="A signed receipt", responses=responses(404))
async def get_signed_receipt(
    flow: Annotated[str, Path(alias="id", pattern=r"^[A-Za-z0-9_-]{1,64}$")],
    request: Request,
    gateway: Context,
    principal: AnyRole,
) -> SignedReceipt:
    """What a rate request was granted and what was delivered, signed; `chart receipt verify` checks it offline."""
    return SignedReceipt.model_validate(await gateway.authority.ask("GET", f"/v1/receipts/{flow}", request))


@router.get("/receipt-keys", summary="Public keys of receipts")
async def get_receipt_keys(request: Request, gateway: Context, principal: AnyRole) -> ReceiptKeys:
    """Public keys (JWKS) for offline verification of receipts."""
    return ReceiptKeys.model_validate(await gateway.authority.ask("GET", "/v1/receipt-keys", request))


def _authorisation(found: dict[str, Any]) -> Authorisation:
    return Authorisation.model_validate({name: found[name] for name in Authorisation.model_fields})
