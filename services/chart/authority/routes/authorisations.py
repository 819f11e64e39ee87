"""Authorisations of clients and their policies."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from ulid import ULID

from chart.authority import repository, service
from chart.authority.context import Anyone, Caller, Context, Operator, forbidden
from chart.authority.routes.next_hops import Since, Wait, wait_for_change
from chart.authority.schemas import Authorisation, AuthorisationBody, Authorisations, Policy, PolicyBody, Unauthorised
from chart.common import audit
from chart.common.problems import ProblemError
from chart.v1 import tenant_pb2

router = APIRouter(prefix="/v1")

Identifier = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]


def _person(who: Caller) -> str:
    if who.subject is None:
        raise forbidden(f"{who.identity.short} is no person or application: authorisations are for them.")
    if who.principal is not None and not who.principal.has("application", "operator", "admin"):
        raise forbidden("The token has no role that may ask for a rate.")
    return who.subject


def _caller(who: Caller) -> tenant_pb2.Caller:
    found = who.principal
    tenant, client = (found.tenant, found.client) if found is not None else ("", "")
    return tenant_pb2.Caller(tenant=tenant, client=client, operator=who.operator)


@router.post("/authorisations", status_code=201)
async def create_authorisation(body: AuthorisationBody, authority: Context, who: Anyone) -> Authorisation:
    """A time-bound grant for the client's address, by policy."""
    owner = _person(who)
    roles = who.principal.roles if who.principal is not None else frozenset({"user"})
    asked = service.Asked(body.service, body.max_guaranteed_bps, body.max_priority, body.delay_class, body.duration_s)
    stated = str(body.client_address) if body.client_address is not None else None
    async with authority.pool.connection() as connection, connection.transaction():
        policies = [policy_of(row) for row in await repository.policies(connection)]
        policy = service.policy_for(f"user/{owner}", roles, policies)
        address = service.check_address(stated, who.address, policy, operator=who.operator)
        authority.owners.check(address, owner, _caller(who))
        granted = service.authorise(asked, policy, round(authority.settings.authority_authorisation_max_s))
        identity = str(ULID())
        expires_at_us = authority.clock.now_us() + granted.duration_s * 1_000_000
        revision = await repository.next_revision(connection)
        await repository.add_authorisation(
            connection, identity, owner, address, dict(granted.body()), expires_at_us, revision
        )
        detail = {"client_address": address, "policy": policy.id, "expires_at_us": expires_at_us, **granted.body()}
        await audit.add(connection, who.actor, "authorisation.create", identity, detail)
    stored = granted.body()
    return Authorisation.model_validate(
        {"id": identity, "owner": owner, "client_address": address, "expires_at_us": expires_at_us, **stored}
    )


@router.get("/authorisations")
async def get_authorisations(authority: Context, who: Anyone, since: Since = 0, wait_s: Wait = None) -> Authorisations:
    """For enforcement points: what changed since a revision. People see their own."""
    everything = who.local and (who.element is not None or who.operator)
    if not everything and who.subject is None:
        raise forbidden("Authorisations are for enforcement points of this domain and for their owners.")
    await wait_for_change(authority, since, wait_s)
    async with authority.pool.connection() as connection, connection.transaction():
        revision, forgotten = await repository.revision(connection)
        full = since == 0 or since < forgotten or since > revision
        rows = await repository.authorisations(connection, 0 if full else since, None if everything else who.subject)
    settings = authority.platform.applied(authority.settings)
    return Authorisations(
        revision=revision,
        full=full,
        authorisations=[_authorisation(row) for row in rows if not (full and row["removed_at_us"] is not None)],
        unauthorised=Unauthorised(
            action=settings.authority_unauthorised, available_bps=settings.authority_free_available_bps
        ),
    )


@router.delete("/authorisations/{id}", status_code=204)
async def delete_authorisation(
    identity: Annotated[str, Path(alias="id", pattern=r"^[0-9A-Za-z]{1,64}$")], authority: Context, who: Anyone
) -> None:
    """Revoke an authorisation: one's own, or anybody's as an operator."""
    owner = None if who.operator else _person(who)
    async with authority.pool.connection() as connection, connection.transaction():
        revision = await repository.next_revision(connection)
        now_us = authority.clock.now_us()
        if not await repository.remove_authorisation(connection, identity, owner, now_us, revision):
            raise ProblemError(404, "Not found", "The authorisation does not exist, or belongs to another owner.")
        await audit.add(connection, who.actor, "authorisation.delete", identity, {})


@router.get("/authorisation-policies")
async def list_policies(authority: Context, _operator: Operator) -> list[Policy]:
    """By name. Whom none of them names gets the default policy."""
    async with authority.pool.connection() as connection:
        return [Policy(id=row["id"], **row["body"]) for row in await repository.policies(connection)]


@router.put("/authorisation-policies/{id}", status_code=204)
async def put_policy(
    identity: Annotated[Identifier, Path(alias="id")], body: PolicyBody, authority: Context, operator: Operator
) -> None:
    """What people of some kind may be given; holds for authorisations made from now on."""
    async with authority.pool.connection() as connection, connection.transaction():
        revision = await repository.next_revision(connection)
        await repository.put_policy(connection, identity, body.model_dump(mode="json"), revision)
        await audit.add(connection, operator.actor, "authorisation-policy.put", identity, body.model_dump(mode="json"))


@router.delete("/authorisation-policies/{id}", status_code=204)
async def delete_policy(
    identity: Annotated[Identifier, Path(alias="id")], authority: Context, operator: Operator
) -> None:
    """Authorisations that it gave stand until their end."""
    async with authority.pool.connection() as connection, connection.transaction():
        await repository.next_revision(connection)
        if not await repository.remove_policy(connection, identity):
            raise ProblemError(404, "Not found", f"There is no authorisation policy {identity}.", field="id")
        await audit.add(connection, operator.actor, "authorisation-policy.delete", identity, {})


def policy_of(row: dict[str, Any]) -> service.Policy:
    """A stored policy."""
    body = row["body"]
    lists = {name: tuple(body[name]) for name in ("subjects", "services")}
    return service.Policy(id=row["id"], **{**body, **lists})


def _authorisation(row: dict[str, Any]) -> Authorisation:
    return Authorisation.model_validate(
        {
            "id": row["id"],
            "owner": row["owner"],
            "client_address": row["client_address"],
            "expires_at_us": row["expires_at_us"],
            "removed": row["removed_at_us"] is not None,
            **row["body"],
        }
    )
