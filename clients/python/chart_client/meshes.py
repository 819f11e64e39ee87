"""Sensing meshes: nodes that measure each other, as one resource."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from chart_client.models import Model
from chart_client.resource import Resource, path_of


class MeshSensor(Model):
    """A sensor of a mesh and the time between two runs of a pair."""

    sensor: str
    period_ms: int
    parameters: dict[str, str]


class MeshMember(Model):
    """A member: measuring, silent, without-address or unknown."""

    node: str
    state: str


class MeshLink(Model):
    """What a mesh takes of a link, bytes a minute, answers included."""

    link: str
    capacity_bps: int | None = None
    planned_bytes: int
    limit_bytes: int
    share: float


class MeshPlan(Model):
    """What measures now because of a mesh."""

    members: list[MeshMember]
    configurations: int
    chosen: int = 0
    links: list[MeshLink]
    slowest: float
    changed_at: datetime | None = None
    remarks: list[str]


class Mesh(Model):
    """A sensing mesh."""

    id: str
    revision: int
    description: str
    nodes: list[str]
    node_tags: dict[str, str]
    sensors: list[MeshSensor]
    budget_share: float
    priority: int
    enabled: bool
    active: bool = True
    owner: str
    plan: MeshPlan


class CoveredPair(Model):
    """The latest result of one sensor of one pair."""

    source_node: str
    destination_node: str
    sensor: str
    metric: str
    period_ms: int
    value: float | None = None
    unit: str
    measured_at: datetime | None = None
    fresh: bool
    error: str = ""


class Coverage(Model):
    """How much of a mesh is measured: pairs, and those whose every result is younger than two periods."""

    mesh: str
    pairs: int
    fresh: int
    items: list[CoveredPair]


class Meshes(Resource):
    """Sensing meshes."""

    def list(self) -> Iterator[Mesh]:
        """By id."""
        return self._all(Mesh, path_of("sensing-meshes"))

    def get(self, mesh_id: str) -> Mesh:
        """One mesh with its plan."""
        return self._one(Mesh, "GET", path_of("sensing-meshes", mesh_id))

    def put(self, mesh_id: str, **fields: Any) -> Mesh:
        """Set a mesh; fields: sensors, nodes, node_tags, budget_share, priority, enabled, active,
        description."""
        return self._one(Mesh, "PUT", path_of("sensing-meshes", mesh_id), fields)

    def delete(self, mesh_id: str) -> None:
        """Remove a mesh with its sensing configurations; stored results are kept."""
        self._transport.request("DELETE", path_of("sensing-meshes", mesh_id))

    def coverage(self, mesh_id: str) -> Coverage:
        """The latest result of every pair and sensor."""
        return self._one(Coverage, "GET", path_of("sensing-meshes", mesh_id, "coverage"))
