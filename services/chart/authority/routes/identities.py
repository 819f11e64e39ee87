"""Certificates, enrolments, revocations, and who has a certificate."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from chart.authority import certificates, enrolment_repository, enrolments, repository, service_accounts
from chart.authority.context import Context, Operator, caller, forbidden
from chart.authority.schemas import (
    Certificate,
    CertificateBody,
    Enrolment,
    EnrolmentBody,
    ListedEnrolment,
    ListedIdentity,
    Revocation,
    RevocationBody,
)
from chart.authority.tls import PEER_CERTIFICATE
from chart.common.problems import ProblemError

router = APIRouter(prefix="/v1")

EnrolmentId = Annotated[str, Path(alias="id", pattern=r"^[0-9A-Za-z-]{1,64}$")]
Limit = Annotated[int, Query(ge=1, le=10_000)]


@router.post("/certificates", status_code=201)
async def issue_certificate(body: CertificateBody, request: Request, authority: Context) -> Certificate:
    """With a one-time token, or a pod's service account token: enrolment, the only call without a certificate. With a
    certificate: its renewal. Who did not hear the answer to a one-time token asks again with the same key.
    """
    holder = None
    if body.token is None:
        if request.scope.get(PEER_CERTIFICATE) is None:
            raise ProblemError(
                401, "Not authenticated", "This needs a one-time token, or a certificate to renew.", field="token"
            )
        holder = (await caller(request, authority)).proof
        if holder.identity.domain != authority.settings.authority_domain:
            raise forbidden("A certificate is renewed by the authority of its own domain.")
    claimed = enrolments.identity_of(authority, body.identity) if body.identity is not None else None
    if body.token is not None and service_accounts.is_one(body.token):
        account = await service_accounts.account_of(
            authority.kubernetes, authority.settings, body.token, claimed, authority.clock.now_us()
        )
        return await certificates.issue(authority, body.csr, token=None, holder=None, account=account)
    return await certificates.issue(authority, body.csr, token=body.token, holder=holder, claimed=claimed)


@router.post("/enrolments", status_code=201)
async def create_enrolment(body: EnrolmentBody, authority: Context, operator: Operator) -> Enrolment:
    """A one-time token for a node, a person or a service."""
    return await enrolments.make(authority, body, operator.actor)


@router.get("/enrolments")
async def list_enrolments(authority: Context, _operator: Operator, limit: Limit = 1000) -> list[ListedEnrolment]:
    """Open ones and those that are over, the newest first."""
    now_us = authority.clock.now_us()
    async with authority.pool.connection() as connection:
        rows = await enrolment_repository.newest(connection, limit)
    return [ListedEnrolment(state=enrolments.state_of(row, now_us), **row) for row in rows]


@router.delete("/enrolments/{id}", status_code=204)
async def withdraw_enrolment(enrolment: EnrolmentId, authority: Context, operator: Operator) -> None:
    """Its token enrols nobody any more."""
    await enrolments.withdraw(authority, enrolment, operator.actor)


@router.get("/identities")
async def list_identities(authority: Context, _operator: Operator) -> list[ListedIdentity]:
    """Everybody who was ever given a certificate, by name."""
    async with authority.pool.connection() as connection:
        return [ListedIdentity(**row) for row in await repository.identities(connection)]


@router.post("/revocations", status_code=204)
async def revoke(body: RevocationBody, authority: Context, operator: Operator) -> None:
    """Takes effect at once here, on other replicas within a second, on other nodes with their next poll."""
    await certificates.revoke(authority, body, operator.actor)


@router.get("/revocations")
async def list_revocations(authority: Context, _operator: Operator, limit: Limit = 1000) -> list[Revocation]:
    """Certificates that were revoked, the newest revocation first."""
    async with authority.pool.connection() as connection:
        return [Revocation(**row) for row in await repository.revoked_certificates(connection, limit)]
