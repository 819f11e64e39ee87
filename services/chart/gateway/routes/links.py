"""/v1/links: directed links with load, link rate and measurements."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from chart.common import names
from chart.common.problems import ProblemError
from chart.gateway import mapping
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IfMatch, Limit, expected_revision, page, tag
from chart.gateway.live import TOPOLOGY
from chart.gateway.schemas.common import LINK_ID_PATTERN
from chart.gateway.schemas.network import Link, LinkBody, LinkPage
from chart.v1 import registry_pb2, topology_pb2

router = APIRouter(prefix="/v1", tags=["network"], responses=responses(401, 403, 422, 429, 500, 503))

LinkIdPath = Annotated[
    str,
    Path(
        alias="id",
        pattern=LINK_ID_PATTERN,
        max_length=names.LINK_LENGTH_MAX,
        description="`<from>:<interface>`.",
        examples=["bravo:to-charlie"],
    ),
]


async def known_links(gateway: Gateway) -> list[tuple[topology_pb2.Link, int]]:
    """Every link with its revision: from the registry, or from the stream while the registry is away."""
    try:
        with problems("registry"):
            answer = await gateway.backends.registry.ListLinks(registry_pb2.ListLinksRequest())
    except ProblemError as problem:
        if problem.status != 503 or TOPOLOGY in gateway.followers.missing:
            raise
        return [(entity.link, entity.revision) for entity in gateway.live.links.values()]
    return list(zip(answer.links, answer.revisions, strict=True))


@router.get("/links", summary="List links")
async def list_links(gateway: Context, _principal: AnyRole, limit: Limit = 1000, cursor: Cursor = None) -> LinkPage:
    """By id, each with its live state."""
    shown, next_cursor = page(await known_links(gateway), lambda pair: pair[0].id, limit, cursor)
    now_us = gateway.clock.now_us()
    return LinkPage(items=[gateway.live.link(*pair, now_us) for pair in shown], next_cursor=next_cursor)


@router.get("/links/{id}", summary="One link", responses=responses(404))
async def get_link(link_id: LinkIdPath, response: Response, gateway: Context, _principal: AnyRole) -> Link:
    """With its live state."""
    for message, revision in await known_links(gateway):
        if message.id == link_id:
            tag(response, revision)
            return gateway.live.link(message, revision, gateway.clock.now_us())
    raise ProblemError(404, "Not found", f"Link {link_id} does not exist.", field="id")


@router.put(
    "/links/{id}",
    summary="Register or change a link",
    responses={**responses(400, 409, 412, 413), 201: {"model": Link, "description": "Created."}},
)
async def put_link(
    link_id: LinkIdPath,
    body: LinkBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> Link:
    """Creates or replaces the link. Its transmitting node and interface follow from the id."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {message.id: revision for message, revision in await known_links(gateway)}.get(link_id)
    call = registry_pb2.PutLinkRequest(
        link=mapping.link_message(link_id, body), expected_revision=expected_revision(if_match, current)
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutLink(call, metadata=acting(principal.subject))
    tag(response, answer.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/links/{link_id}"
    return gateway.live.link(answer.link, answer.revision, gateway.clock.now_us())


@router.delete("/links/{id}", status_code=204, summary="Remove a link", responses=responses(404, 409))
async def delete_link(link_id: LinkIdPath, gateway: Context, principal: Operator) -> None:
    """Requests on it are admitted on another path, or become degraded."""
    with problems("registry"):
        await gateway.backends.registry.DeleteLink(
            registry_pb2.DeleteLinkRequest(id=link_id), metadata=acting(principal.subject)
        )
