"""Between meshes of the registry and their JSON, and which of their pairs are measured. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chart.common.probe_costs import MAIN_METRIC
from chart.gateway.live import AnyMeasurement
from chart.gateway.schemas import meshes
from chart.gateway.schemas.common import timestamp, timestamp_or_none
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from chart.v1.sensing_mesh_pb2 import MeshLink, MeshPlan, MeshSensor, SensingMesh

# A result may be so many periods old.
FRESH_PERIODS = 2
# What is assumed of a link whose capacity is unknown (registry/meshes.py).
_UNKNOWN_CAPACITY_BPS = 1_000_000

Latest = Callable[[str, str, str], AnyMeasurement | None]


def mesh_message(identity: str, body: meshes.MeshBody, owner: str) -> SensingMesh:
    """What the registry stores."""
    return SensingMesh(
        id=identity,
        description=body.description,
        nodes=body.nodes,
        node_tags=body.node_tags,
        sensors=[
            MeshSensor(sensor=one.sensor, parameters=one.parameters, period_ms=one.period_ms) for one in body.sensors
        ],
        budget_share=body.budget_share,
        priority=body.priority,
        enabled=body.enabled,
        active=body.active,
        owner=owner,
    )


def mesh(message: SensingMesh, plan: MeshPlan) -> meshes.Mesh:
    """A mesh with its plan."""
    return meshes.Mesh(
        id=message.id,
        revision=message.revision,
        description=message.description,
        nodes=list(message.nodes),
        node_tags=dict(message.node_tags),
        sensors=[
            meshes.MeshSensor(sensor=one.sensor, period_ms=one.period_ms, parameters=dict(one.parameters))
            for one in message.sensors
        ],
        budget_share=message.budget_share,
        priority=message.priority,
        enabled=message.enabled,
        active=message.active if message.HasField("active") else True,
        owner=message.owner,
        plan=meshes.MeshPlan(
            members=[meshes.MeshMember(node=one.node, state=one.state) for one in plan.members],
            configurations=plan.configurations,
            chosen=plan.chosen,
            links=[_link(one) for one in plan.links],
            slowest=plan.slowest or 1.0,
            changed_at=timestamp_or_none(plan.changed_at_us),
            remarks=list(plan.remarks),
        ),
    )


def _link(message: MeshLink) -> meshes.MeshLink:
    capacity_bps = message.capacity_bps or _UNKNOWN_CAPACITY_BPS
    return meshes.MeshLink(
        link=message.link_id,
        capacity_bps=message.capacity_bps or None,
        planned_bytes=message.planned_bytes,
        limit_bytes=message.limit_bytes,
        share=message.planned_bytes * 8 / 60 / capacity_bps,
    )


def coverage(
    identity: str, configurations: Iterable[SensingConfiguration], latest: Latest, now_us: int
) -> meshes.Coverage:
    """The latest result of each pair; ``latest`` finds one by source, destination and metric."""
    items = [_covered(one, latest, now_us) for one in configurations]
    items.sort(key=lambda item: (item.source_node, item.destination_node, item.sensor))
    fresh: dict[tuple[str, str], bool] = {}
    for item in items:
        pair = (item.source_node, item.destination_node)
        fresh[pair] = fresh.get(pair, True) and item.fresh
    return meshes.Coverage(mesh=identity, pairs=len(fresh), fresh=sum(fresh.values()), items=items)


def _covered(configuration: SensingConfiguration, latest: Latest, now_us: int) -> meshes.CoveredPair:
    metric, unit = MAIN_METRIC.get(configuration.sensor, (configuration.sensor, ""))
    known = latest(configuration.source_node, configuration.destination_node, metric)
    good = known is not None and not known.error
    young = known is not None and now_us - known.measured_at_us < FRESH_PERIODS * configuration.period_ms * 1000
    return meshes.CoveredPair(
        source_node=configuration.source_node,
        destination_node=configuration.destination_node,
        sensor=configuration.sensor,
        metric=metric,
        period_ms=configuration.period_ms,
        value=known.value if known is not None and good else None,
        unit=unit,
        measured_at=timestamp(known.measured_at_us) if known is not None else None,
        fresh=good and young,
        error=known.error if known is not None else "",
    )
