"""/v1/sensing-meshes: nodes that measure each other; configured by operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from chart.common.problems import ProblemError
from chart.gateway import mesh_mapping
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IfMatch, Limit, expected_revision, page, tag
from chart.gateway.schemas.common import LABEL_PATTERN
from chart.gateway.schemas.meshes import Coverage, Mesh, MeshBody, MeshPage
from chart.v1 import registry_pb2, sensing_mesh_pb2

router = APIRouter(prefix="/v1", tags=["sensing"], responses=responses(401, 403, 422, 429, 500, 503))

MeshId = Annotated[
    str,
    Path(alias="id", pattern=LABEL_PATTERN, max_length=63, description="Chosen by the caller.", examples=["sites"]),
]
Known = list[tuple[sensing_mesh_pb2.SensingMesh, sensing_mesh_pb2.MeshPlan]]


async def _meshes(gateway: Gateway) -> Known:
    with problems("registry"):
        answer = await gateway.backends.registry.ListSensingMeshes(registry_pb2.ListSensingMeshesRequest())
    return list(zip(answer.meshes, answer.plans, strict=True))


async def _found(gateway: Gateway, mesh_id: str) -> tuple[sensing_mesh_pb2.SensingMesh, sensing_mesh_pb2.MeshPlan]:
    for mesh, plan in await _meshes(gateway):
        if mesh.id == mesh_id:
            return mesh, plan
    raise ProblemError(404, "Not found", f"Sensing mesh {mesh_id} does not exist.", field="id")


@router.get("/sensing-meshes", summary="List sensing meshes")
async def list_meshes(gateway: Context, _principal: AnyRole, limit: Limit = 1000, cursor: Cursor = None) -> MeshPage:
    """By id, with what each was laid out to."""
    shown, next_cursor = page(await _meshes(gateway), lambda found: found[0].id, limit, cursor)
    return MeshPage(items=[mesh_mapping.mesh(*found) for found in shown], next_cursor=next_cursor)


@router.get("/sensing-meshes/{id}", summary="One sensing mesh", responses=responses(404))
async def get_mesh(mesh_id: MeshId, response: Response, gateway: Context, _principal: AnyRole) -> Mesh:
    """With its members and what it takes of each link."""
    mesh, plan = await _found(gateway, mesh_id)
    tag(response, mesh.revision)
    return mesh_mapping.mesh(mesh, plan)


@router.put(
    "/sensing-meshes/{id}",
    summary="Set a sensing mesh",
    responses={**responses(400, 409, 412, 413), 201: {"model": Mesh, "description": "Created."}},
)
async def put_mesh(
    mesh_id: MeshId,
    body: MeshBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> Mesh:
    """Its members begin to measure within seconds; members that come and go are followed within 10 s."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {mesh.id: mesh.revision for mesh, _ in await _meshes(gateway)}.get(mesh_id)
    call = registry_pb2.PutSensingMeshRequest(
        mesh=mesh_mapping.mesh_message(mesh_id, body, principal.subject),
        expected_revision=expected_revision(if_match, current),
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutSensingMesh(call, metadata=acting(principal.subject))
    tag(response, answer.mesh.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/sensing-meshes/{mesh_id}"
    plans = {mesh.id: plan for mesh, plan in await _meshes(gateway)}
    return mesh_mapping.mesh(answer.mesh, plans.get(mesh_id, sensing_mesh_pb2.MeshPlan()))


@router.delete("/sensing-meshes/{id}", status_code=204, summary="Remove a sensing mesh", responses=responses(404, 409))
async def delete_mesh(mesh_id: MeshId, gateway: Context, principal: Operator) -> None:
    """Its sensing configurations go with it; stored results are kept."""
    call = registry_pb2.DeleteSensingMeshRequest(id=mesh_id)
    with problems("registry"):
        await gateway.backends.registry.DeleteSensingMesh(call, metadata=acting(principal.subject))


@router.get("/sensing-meshes/{id}/coverage", summary="Coverage of a sensing mesh", responses=responses(404))
async def get_coverage(mesh_id: MeshId, gateway: Context, _principal: AnyRole) -> Coverage:
    """The latest result of every pair and sensor, and whether it is fresh."""
    await _found(gateway, mesh_id)
    call = registry_pb2.ListSensingConfigurationsRequest(mesh=mesh_id)
    with problems("registry"):
        answer = await gateway.backends.registry.ListSensingConfigurations(call)
    measurements = gateway.live.measurements
    return mesh_mapping.coverage(
        mesh_id,
        answer.configurations,
        lambda source, destination, metric: measurements.get((source, destination, metric)),
        gateway.clock.now_us(),
    )
