"""/v1/nodes: nodes with the state that their agents report."""

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
from chart.gateway.schemas.common import NODE_ID_PATTERN
from chart.gateway.schemas.network import Node, NodeBody, NodePage
from chart.v1 import registry_pb2, topology_pb2

router = APIRouter(prefix="/v1", tags=["network"], responses=responses(401, 403, 422, 429, 500, 503))

NodeIdPath = Annotated[
    str,
    Path(
        alias="id",
        pattern=NODE_ID_PATTERN,
        max_length=names.NODE_LENGTH_MAX,
        description="Host name.",
        examples=["bravo"],
    ),
]


async def known_nodes(gateway: Gateway) -> list[tuple[topology_pb2.Node, int]]:
    """Every node with its revision: from the registry, or from the stream while the registry is away."""
    try:
        with problems("registry"):
            answer = await gateway.backends.registry.ListNodes(registry_pb2.ListNodesRequest())
    except ProblemError as problem:
        if problem.status != 503 or TOPOLOGY in gateway.followers.missing:
            raise
        return [(entity.node, entity.revision) for entity in gateway.live.nodes.values()]
    return list(zip(answer.nodes, answer.revisions, strict=True))


@router.get("/nodes", summary="List nodes")
async def list_nodes(gateway: Context, _principal: AnyRole, limit: Limit = 1000, cursor: Cursor = None) -> NodePage:
    """By id."""
    shown, next_cursor = page(await known_nodes(gateway), lambda pair: pair[0].id, limit, cursor)
    now_us = gateway.clock.now_us()
    return NodePage(items=[gateway.live.node(*pair, now_us) for pair in shown], next_cursor=next_cursor)


@router.get("/nodes/{id}", summary="One node", responses=responses(404))
async def get_node(node_id: NodeIdPath, response: Response, gateway: Context, _principal: AnyRole) -> Node:
    """With the state that its agent reported."""
    for message, revision in await known_nodes(gateway):
        if message.id == node_id:
            tag(response, revision)
            return gateway.live.node(message, revision, gateway.clock.now_us())
    raise ProblemError(404, "Not found", f"Node {node_id} does not exist.", field="id")


@router.put(
    "/nodes/{id}",
    summary="Register or change a node",
    responses={**responses(400, 409, 412, 413), 201: {"model": Node, "description": "Created."}},
)
async def put_node(
    node_id: NodeIdPath,
    body: NodeBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> Node:
    """Creates or replaces the node."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {message.id: revision for message, revision in await known_nodes(gateway)}.get(node_id)
    call = registry_pb2.PutNodeRequest(
        node=mapping.node_message(node_id, body),
        expected_revision=expected_revision(if_match, current),
        keep_edges=body.edges is None,
        keep_tunnel_ends=body.tunnel_ends is None,
        keep_proxied_traffic=body.proxied_traffic is None,
        keep_overlay=body.overlay is None,
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutNode(call, metadata=acting(principal.subject))
    tag(response, answer.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/nodes/{node_id}"
    return gateway.live.node(answer.node, answer.revision, gateway.clock.now_us())


@router.delete("/nodes/{id}", status_code=204, summary="Remove a node", responses=responses(404, 409))
async def delete_node(node_id: NodeIdPath, gateway: Context, principal: Operator) -> None:
    """Refused while the node has links."""
    with problems("registry"):
        await gateway.backends.registry.DeleteNode(
            registry_pb2.DeleteNodeRequest(id=node_id), metadata=acting(principal.subject)
        )
