"""/v1/enrolments, /v1/identities, /v1/revocations and /v1/peers: whom the authority believes. For operators."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from chart.gateway.auth import Operator
from chart.gateway.context import Context
from chart.gateway.errors import responses
from chart.gateway.http import IdempotencyKey
from chart.gateway.once import OnceRoute, once
from chart.gateway.schemas.common import timestamp, timestamp_or_none
from chart.gateway.schemas.identities import (
    DOMAIN_PATTERN,
    Enrolment,
    EnrolmentBody,
    Enrolments,
    Identities,
    Identity,
    NewEnrolment,
    Peer,
    PeerBody,
    Peers,
    Revocation,
    RevocationBody,
    Revocations,
)

router = APIRouter(
    prefix="/v1", tags=["identities"], responses=responses(401, 403, 422, 429, 500, 503), route_class=OnceRoute
)

EnrolmentId = Annotated[str, Path(alias="id", pattern=r"^[0-9A-Za-z-]{1,64}$", max_length=64)]
Domain = Annotated[str, Path(pattern=DOMAIN_PATTERN, max_length=100, examples=["example.net"])]
Limit = Annotated[int, Query(ge=1, le=10_000, description="Greatest number of items.")]


@router.post("/enrolments", status_code=201, summary="Enrol a node or a service", responses=responses(400, 409, 413))
async def create_enrolment(
    body: EnrolmentBody,
    request: Request,
    gateway: Context,
    _principal: Operator,
    idempotency_key: IdempotencyKey = None,
) -> NewEnrolment:
    """Makes a one-time token. It is kept nowhere: a repetition with the same Idempotency-Key gives the same enrolment
    with another token, and the one before is worth nothing then.
    """
    stated: dict[str, Any] = {"identity": body.identity, "life_s": body.life_s, "repetition_key": idempotency_key}
    made = await gateway.authority.ask("POST", "/v1/enrolments", request, stated)
    return NewEnrolment(
        id=made["id"],
        identity=made["identity"],
        token=made["token"],
        expires_at=timestamp(made["expires_at_us"]),
        authority_url=gateway.settings.authority_public_url or gateway.settings.authority_url,
        authority_ca_pem=await gateway.authority.ca_pem(),
    )


@router.get("/enrolments", summary="Enrolments")
async def list_enrolments(request: Request, gateway: Context, _principal: Operator, limit: Limit = 1000) -> Enrolments:
    """Open ones, and those that were used, expired or were withdrawn up to 30 days ago; the newest first."""
    found = await gateway.authority.ask("GET", f"/v1/enrolments?limit={limit}", request)
    return Enrolments(items=[_enrolment(one) for one in found])


@router.delete("/enrolments/{id}", status_code=204, summary="Withdraw an enrolment", responses=responses(404, 409))
async def withdraw_enrolment(enrolment: EnrolmentId, request: Request, gateway: Context, _principal: Operator) -> None:
    """Its token enrols nobody any more. One that was used cannot be withdrawn: revoke its holder."""
    await gateway.authority.ask("DELETE", f"/v1/enrolments/{enrolment}", request)


@router.get("/identities", summary="Who has a certificate")
async def list_identities(request: Request, gateway: Context, _principal: Operator) -> Identities:
    """Everybody who was ever given a certificate, with the newest one."""
    now_us = gateway.clock.now_us()
    found = await gateway.authority.ask("GET", "/v1/identities", request)
    return Identities(items=[_identity(one, now_us) for one in found])


@router.post(
    "/revocations",
    status_code=204,
    summary="Revoke certificates",
    responses=responses(400, 404, 409, 413),
    dependencies=[once],
)
async def create_revocation(body: RevocationBody, request: Request, gateway: Context, _principal: Operator) -> None:
    """Of an identity all of them, and of a node its keys too; or one by its serial number. The authority refuses it at
    once, other nodes hear of it within seconds. Who was revoked may be enrolled again.
    """
    await gateway.authority.ask("POST", "/v1/revocations", request, body.model_dump(mode="json"))


@router.get("/revocations", summary="What was revoked")
async def list_revocations(
    request: Request, gateway: Context, _principal: Operator, limit: Limit = 1000
) -> Revocations:
    """Certificates, the newest revocation first."""
    found = await gateway.authority.ask("GET", f"/v1/revocations?limit={limit}", request)
    return Revocations(items=[_revocation(one) for one in found])


@router.get("/peers", summary="Neighbouring domains")
async def list_peers(request: Request, gateway: Context, _principal: Operator) -> Peers:
    """With the pairs of elements that share keys across the border."""
    found = await gateway.authority.ask("GET", "/v1/peers", request)
    return Peers(items=[Peer.model_validate(one) for one in found])


@router.put("/peers/{domain}", summary="State a neighbouring domain", responses=responses(400, 413))
async def put_peer(domain: Domain, body: PeerBody, request: Request, gateway: Context, _principal: Operator) -> Peer:
    """It counts when the neighbour's operator enters us too."""
    stated = body.model_dump(mode="json")
    return Peer.model_validate(await gateway.authority.ask("PUT", f"/v1/peers/{domain}", request, stated))


@router.delete("/peers/{domain}", status_code=204, summary="Remove a neighbouring domain", responses=responses(404))
async def delete_peer(domain: Domain, request: Request, gateway: Context, _principal: Operator) -> None:
    """Its certificates are believed no more."""
    await gateway.authority.ask("DELETE", f"/v1/peers/{domain}", request)


def _enrolment(found: dict[str, Any]) -> Enrolment:
    return Enrolment(
        id=found["id"],
        identity=found["identity"],
        state=found["state"],
        created_by=found["created_by"],
        created_at=timestamp_or_none(found["created_at_us"]),
        expires_at=timestamp(found["expires_at_us"]),
        used_at=timestamp_or_none(found["used_at_us"] or 0),
        withdrawn_at=timestamp_or_none(found["withdrawn_at_us"] or 0),
        certificate_serial=found["serial"],
        certificate_expires_at=timestamp_or_none(found["not_after_us"] or 0),
        certificate_revoked_at=timestamp_or_none(found["revoked_at_us"] or 0),
    )


def _identity(found: dict[str, Any], now_us: int) -> Identity:
    certificate_revoked_us = found["certificate_revoked_at_us"] or 0
    revoked_us = certificate_revoked_us if found["active"] else found["revoked_at_us"]
    expired = (found["not_after_us"] or 0) <= now_us
    return Identity(
        identity=found["identity"],
        element_id=found["element_id"],
        state="revoked" if revoked_us else "expired" if expired else "enrolled",
        certificate_serial=found["serial"],
        certificate_issued_at=timestamp_or_none(found["issued_at_us"] or 0),
        certificate_expires_at=timestamp_or_none(found["not_after_us"] or 0),
        revoked_at=timestamp_or_none(revoked_us),
        reason=(found["revoked_because"] or "") if revoked_us else "",
    )


def _revocation(found: dict[str, Any]) -> Revocation:
    return Revocation(
        identity=found["identity"],
        serial=found["serial"],
        revoked_at=timestamp(found["revoked_at_us"]),
        reason=found["reason"],
        certificate_expires_at=timestamp(found["not_after_us"]),
        enrolled_again=found["active"],
    )
