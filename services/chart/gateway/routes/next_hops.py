"""/v1/next-hops and /v1/authorisation-policies: what the authority tells the elements. For operators."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import IPvAnyAddress

from chart.common import names
from chart.common.problems import ProblemError
from chart.gateway.auth import Operator
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.schemas.common import timestamp_or_none
from chart.gateway.schemas.identities import (
    ELEMENT_PATTERN,
    AuthorisationPolicies,
    AuthorisationPolicy,
    AuthorisationPolicyBody,
    NextHop,
    NextHopBody,
    NextHops,
)

router = APIRouter(prefix="/v1", responses=responses(401, 403, 422, 429, 500, 503))

Element = Annotated[str, Path(pattern=ELEMENT_PATTERN, max_length=names.NODE_LENGTH_MAX + 101, examples=["alpha"])]
NetworkAddress = Annotated[IPvAnyAddress, Path(examples=["10.9.0.0"])]
Bits = Annotated[int, Path(ge=0, le=128, description="Length of the prefix.", examples=[16])]
PolicyId = Annotated[str, Path(alias="id", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", max_length=64)]


def _prefix(network: IPvAnyAddress, bits: int) -> str:
    try:
        return str(ipaddress.ip_network(f"{network}/{bits}"))
    except ValueError as error:
        raise ProblemError(
            422, "Invalid request", f"{network}/{bits} is no prefix: {error}.", field="network", kind="invalid-value"
        ) from None


@router.get("/next-hops", tags=["identities"], summary="Next hops")
async def list_next_hops(
    request: Request,
    gateway: Context,
    _principal: Operator,
    element: Annotated[
        str,
        Query(pattern=rf"{ELEMENT_PATTERN}|^$", max_length=names.NODE_LENGTH_MAX + 101, description="Only its own."),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> NextHops:
    """Of every element: what operators stated, what reports proved, and what follows from the topology."""
    query = f"?limit={limit}" + (f"&element={element}" if element else "")
    found = await gateway.authority.ask("GET", f"/v1/next-hop-entries{query}", request)
    return NextHops(items=[_next_hop(one) for one in found])


@router.get(
    "/next-hops/{element}/{destination}",
    tags=["identities"],
    summary="The next hop towards an address",
    responses=responses(404),
)
async def get_next_hop(
    element: Element,
    destination: Annotated[IPvAnyAddress, Path(examples=["10.9.1.7"])],
    request: Request,
    gateway: Context,
    _principal: Operator,
) -> NextHop:
    """Of the longest prefix that holds it, as the element itself is told."""
    path = f"/v1/next-hops/{destination}?element={element}"
    return _next_hop({"element": element, **await gateway.authority.ask("GET", path, request)})


@router.put(
    "/next-hops/{element}/{network}/{bits}",
    tags=["identities"],
    summary="State a next hop",
    responses=responses(400, 413),
)
async def put_next_hop(
    element: Element,
    network: NetworkAddress,
    bits: Bits,
    body: NextHopBody,
    request: Request,
    gateway: Context,
    _principal: Operator,
) -> NextHop:
    """It stands until an operator takes it back, whatever the topology says."""
    stated = {"element": element, "prefix": _prefix(network, bits), **body.model_dump(mode="json")}
    await gateway.authority.ask("PUT", "/v1/next-hops", request, stated)
    return _next_hop({**stated, "source": "operator"})


@router.delete(
    "/next-hops/{element}/{network}/{bits}",
    status_code=204,
    tags=["identities"],
    summary="Take a next hop back",
    responses=responses(404),
)
async def delete_next_hop(
    element: Element, network: NetworkAddress, bits: Bits, request: Request, gateway: Context, _principal: Operator
) -> None:
    """What the topology says holds again, within a minute."""
    gone = {"element": element, "prefix": _prefix(network, bits), "next_element": None}
    await gateway.authority.ask("PUT", "/v1/next-hops", request, gone)


async def _policies(gateway: Gateway, request: Request) -> list[AuthorisationPolicy]:
    found = await gateway.authority.ask("GET", "/v1/authorisation-policies", request)
    return [AuthorisationPolicy.model_validate(one) for one in found]


@router.get("/authorisation-policies", tags=["authorisations"], summary="Who may be authorised for what")
async def list_authorisation_policies(
    request: Request, gateway: Context, _principal: Operator
) -> AuthorisationPolicies:
    """Whom none of them names gets the authority's default, which is for everybody's own address."""
    return AuthorisationPolicies(items=await _policies(gateway, request))


@router.get(
    "/authorisation-policies/{id}",
    tags=["authorisations"],
    summary="One policy of authorisations",
    responses=responses(404),
)
async def get_authorisation_policy(
    policy_id: PolicyId, request: Request, gateway: Context, _principal: Operator
) -> AuthorisationPolicy:
    """What people of some kind may be given."""
    for one in await _policies(gateway, request):
        if one.id == policy_id:
            return one
    raise ProblemError(404, "Not found", f"There is no authorisation policy {policy_id}.", field="id")


@router.put(
    "/authorisation-policies/{id}",
    tags=["authorisations"],
    summary="Set an authorisation policy",
    responses=responses(400, 413),
)
async def put_authorisation_policy(
    policy_id: PolicyId, body: AuthorisationPolicyBody, request: Request, gateway: Context, _principal: Operator
) -> AuthorisationPolicy:
    """Holds for authorisations that are made from now on."""
    stated = body.model_dump(mode="json")
    await gateway.authority.ask("PUT", f"/v1/authorisation-policies/{policy_id}", request, stated)
    return AuthorisationPolicy(id=policy_id, **stated)


@router.delete(
    "/authorisation-policies/{id}",
    status_code=204,
    tags=["authorisations"],
    summary="Remove a policy of authorisations",
    responses=responses(404),
)
async def delete_authorisation_policy(
    policy_id: PolicyId, request: Request, gateway: Context, _principal: Operator
) -> None:
    """Authorisations that it gave stand until their end."""
    await gateway.authority.ask("DELETE", f"/v1/authorisation-policies/{policy_id}", request)


def _next_hop(found: dict[str, Any]) -> NextHop:
    return NextHop(
        element=found["element"],
        prefix=found["prefix"],
        next_element=found["next_element"],
        source=found["source"],
        shim_address=found["shim_address"],
        expires_at=timestamp_or_none(found.get("expires_at_us") or 0),
    )
