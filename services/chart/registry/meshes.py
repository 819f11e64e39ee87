"""Meshes as they are stated: bounds, defaults and the one that exists from the start. Pure."""

from __future__ import annotations

from chart.common import probe_costs
from chart.common.rpc_errors import invalid
from chart.registry.service import (
    MAX_PERIOD_MS,
    MAX_TAGS,
    MAX_TEXT,
    MIN_PERIOD_MS,
    check_label,
    check_node,
)
from chart.v1.sensing_mesh_pb2 import MeshSensor, SensingMesh

BUILT_IN_ID = "all"
MAX_SENSORS = 8
MAX_NODES = 1000
MAX_BUDGET_SHARE = 0.01
DEFAULT_BUDGET_SHARE = 0.005


def sensing_mesh(stated: SensingMesh) -> SensingMesh:
    """A mesh in its stored form, without its revision.

    Raises:
        RefusalError: names the field.
    """
    check_label("id", stated.id)
    if len(stated.description) > MAX_TEXT:
        raise invalid("description", f"must be at most {MAX_TEXT} characters, has {len(stated.description)}")
    if len(stated.nodes) > MAX_NODES:
        raise invalid("nodes", f"must be at most {MAX_NODES}, are {len(stated.nodes)}")
    for index, node in enumerate(stated.nodes):
        check_node(f"nodes[{index}]", node)
    if len(set(stated.nodes)) != len(stated.nodes):
        raise invalid("nodes", "a node is named twice")
    if len(stated.node_tags) > MAX_TAGS:
        raise invalid("node_tags", f"must be at most {MAX_TAGS}, are {len(stated.node_tags)}")
    if not 1 <= len(stated.sensors) <= MAX_SENSORS:
        raise invalid("sensors", f"must be 1 to {MAX_SENSORS}, are {len(stated.sensors)}", "ping")
    for index, sensor in enumerate(stated.sensors):
        _check_sensor(f"sensors[{index}]", sensor)
    if stated.budget_share and not 0 < stated.budget_share <= MAX_BUDGET_SHARE:
        words = f"must be above 0 and at most {MAX_BUDGET_SHARE:g} of a link's capacity, is {stated.budget_share:g}"
        raise invalid("budget_share", words)
    if stated.priority > 255:
        raise invalid("priority", f"must be between 0 and 255, is {stated.priority}")
    stored = SensingMesh()
    stored.CopyFrom(stated)
    stored.budget_share = stated.budget_share or DEFAULT_BUDGET_SHARE
    stored.active = is_active(stated)
    stored.revision = 0
    return stored


def is_active(mesh: SensingMesh) -> bool:
    """Whether what inference wants measured goes ahead: unless somebody said no."""
    return mesh.active if mesh.HasField("active") else True


def built_in(*, enabled: bool) -> SensingMesh:
    """The mesh that exists from the start: round trips between all nodes that have a sensor pod."""
    return sensing_mesh(
        SensingMesh(
            id=BUILT_IN_ID,
            description="Round trips between all nodes",
            sensors=[MeshSensor(sensor="ping", parameters={"count": "5"}, period_ms=10_000)],
            enabled=enabled,
            owner="registry",
        )
    )


def check_deletion(identity: str) -> None:
    """Refuse to delete the mesh that exists from the start.

    Raises:
        RefusalError: INVALID_ARGUMENT.
    """
    if identity == BUILT_IN_ID:
        raise invalid("id", f"the mesh {identity!r} is built in and cannot be deleted", "disable it instead")


def _check_sensor(place: str, sensor: MeshSensor) -> None:
    try:
        probe_costs.cost_of(sensor.sensor, sensor.parameters)
    except ValueError as error:
        known = sensor.sensor in probe_costs.BETWEEN_NODES
        suggestions = () if known else probe_costs.BETWEEN_NODES
        raise invalid(f"{place}.{'parameters' if known else 'sensor'}", str(error), *suggestions) from None
    if not MIN_PERIOD_MS <= sensor.period_ms <= MAX_PERIOD_MS:
        message = f"must be between {MIN_PERIOD_MS} and {MAX_PERIOD_MS} ms, is {sensor.period_ms}"
        raise invalid(f"{place}.period_ms", message)
