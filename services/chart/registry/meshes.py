"""Meshes: who measures whom, how often. Pure functions of the mesh, the topology and which sensor pods report.

The CHART System, section 6: applications say what they want to know of a set of nodes, and the platform lays the
measurements out. Every member measures every other; of a mesh with more pairs than may be configured each member
measures as many others, and the inference fills the rest. What the probes and their answers would take of a link beyond
the mesh's budget lengthens the periods of all pairs that cross it.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chart.common import probe_costs
from chart.common.rpc_errors import invalid
from chart.common.shortest_paths import Paths
from chart.registry.service import (
    MAX_PERIOD_MS,
    MAX_TAGS,
    MAX_TEXT,
    MESH_PREFIX,
    MIN_PERIOD_MS,
    check_label,
    check_node,
)
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from chart.v1.sensing_mesh_pb2 import MeshLink, MeshMember, MeshPlan, MeshSensor, SensingMesh
from chart.v1.topology_pb2 import Link, Node

BUILT_IN_ID = "all"
MAX_SENSORS = 8
MAX_NODES = 1000
MAX_CONFIGURATIONS = 20_000
MAX_BUDGET_SHARE = 0.01
DEFAULT_BUDGET_SHARE = 0.005
# Of a link whose capacity nobody knows: the least that an access has.
UNKNOWN_CAPACITY_BPS = 1_000_000
MAX_REMARKS = 20
MAX_ID = 128
# A period that has to grow takes the next of these: one node more or less shall not change every period.
_STEPS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12.5, 15, 20, 25, 30, 40, 50, 60, 80, 100)


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
    stored.revision = 0
    return stored


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


@dataclass
class Plan:
    """What a mesh comes to now."""

    configurations: dict[str, SensingConfiguration] = field(default_factory=dict)
    shown: MeshPlan = field(default_factory=MeshPlan)


@dataclass(frozen=True)
class _Run:
    """One sensor of one pair, and what a minute of it takes of each link at the period that was asked for."""

    source: Node
    destination: Node
    place: int
    parameters: dict[str, str]
    bytes_of_run: dict[str, int]


def plan(mesh: SensingMesh, nodes: Iterable[Node], links: Sequence[Link], reporting: Collection[str]) -> Plan:
    """Lay a mesh out; ``reporting`` are the nodes whose sensor pods are there."""
    made = Plan(shown=MeshPlan(slowest=1.0))
    if not mesh.enabled:
        return made
    members = _members(mesh, nodes, reporting, made.shown)
    capacities = {link.id: link.capacity_bps for link in links if link.capacity_bps}
    routes = _routes(members, links)
    runs: list[_Run] = []
    for source, destination in pairs(members, len(mesh.sensors)):
        there, back = routes[source.id].links(destination.id), routes[destination.id].links(source.id)
        for place, sensor in enumerate(mesh.sensors):
            run = _run(mesh, place, sensor, (source, destination), (there, back), capacities, made.shown)
            if run is not None:
                runs.append(run)
    limits = {
        link: _per_minute(mesh.budget_share, capacities.get(link, UNKNOWN_CAPACITY_BPS))
        for run in runs
        for link in run.bytes_of_run
    }
    load: dict[str, float] = defaultdict(float)
    for run in runs:
        for link, size in run.bytes_of_run.items():
            load[link] += size * 60_000 / mesh.sensors[run.place].period_ms
    planned: dict[str, float] = defaultdict(float)
    for run in runs:
        factor = step(max(load[link] / limits[link] for link in run.bytes_of_run))
        configuration = _configuration(mesh, run, factor)
        made.configurations[configuration.id] = configuration
        made.shown.slowest = max(made.shown.slowest, factor)
        for link, size in run.bytes_of_run.items():
            planned[link] += size * 60_000 / configuration.period_ms
    made.shown.configurations = len(made.configurations)
    made.shown.links.extend(
        MeshLink(
            link_id=link, capacity_bps=capacities.get(link, 0), planned_bytes=round(size), limit_bytes=limits[link]
        )
        for link, size in sorted(planned.items())
    )
    return made


def pairs(members: Sequence[Node], sensors: int) -> list[tuple[Node, Node]]:
    """Who measures whom: everyone everyone, or each the same number of others when that would be too much.

    Then the members stand in a circle, in an order that does not change as others come and go, and each measures those
    that follow.
    """
    count = len(members)
    most = min(count - 1, max(1, MAX_CONFIGURATIONS // max(1, count * sensors))) if count > 1 else 0
    circle = sorted(members, key=lambda node: hashlib.blake2b(node.id.encode(), digest_size=8).digest())
    return [(node, circle[(at + 1 + ahead) % count]) for at, node in enumerate(circle) for ahead in range(most)]


def step(factor: float) -> float:
    """The next step of a period that has to grow by this factor; 1 when it has room."""
    if factor > _STEPS[-1]:
        return float(-(-factor // _STEPS[-1]) * _STEPS[-1])
    return next(float(known) for known in _STEPS if factor <= known)


def differences(
    wanted: Mapping[str, SensingConfiguration], stored: Mapping[str, SensingConfiguration]
) -> tuple[list[SensingConfiguration], list[str]]:
    """Configurations to write, and ids of those to remove."""
    changed = [one for identity, one in wanted.items() if stored.get(identity) != one]
    return changed, [identity for identity in stored if identity not in wanted]


def _members(mesh: SensingMesh, nodes: Iterable[Node], reporting: Collection[str], shown: MeshPlan) -> list[Node]:
    """Nodes that measure; every member's state goes to ``shown``."""
    known = {node.id: node for node in nodes}
    tags = dict(mesh.node_tags)
    named = set(mesh.nodes)
    of_all = not named and not tags
    for one in known.values():
        if (tags and tags.items() <= dict(one.tags).items()) or (of_all and one.id in reporting):
            named.add(one.id)
    measuring = []
    for identity in sorted(named):
        node = known.get(identity)
        if node is None:
            state = "unknown"
        elif not _address(node):
            state = "without-address"
        elif identity not in reporting:
            state = "silent"
        else:
            state = "measuring"
            measuring.append(node)
        shown.members.append(MeshMember(node=identity, state=state))
    return measuring


def _address(node: Node) -> str:
    """Where a node is probed: the first of its addresses."""
    return str(ipaddress.ip_interface(node.addresses[0]).ip) if node.addresses else ""


def _routes(members: Sequence[Node], links: Sequence[Link]) -> dict[str, Paths]:
    routes = {}
    for node in members:
        routes[node.id] = Paths(node.id)
        routes[node.id].set_links(links)
    return routes


def _per_minute(share: float, capacity_bps: int) -> int:
    return max(1, int(share * capacity_bps / 8 * 60))


def _run(
    mesh: SensingMesh,
    place: int,
    sensor: MeshSensor,
    ends: tuple[Node, Node],
    paths: tuple[tuple[str, ...], tuple[str, ...]],
    capacities: Mapping[str, int],
    shown: MeshPlan,
) -> _Run | None:
    """One sensor of one pair; None, with a remark, when a single run is more than a minute's budget of a link."""
    parameters = dict(sensor.parameters)
    there, back = paths
    if sensor.sensor == "spruce" and "capacity_bps" not in parameters:
        least = min((capacities.get(link, 0) for link in there), default=0)
        if not least:
            _remark(shown, f"spruce needs the capacity of the path from {ends[0].id} to {ends[1].id}, which is unknown")
            return None
        parameters["capacity_bps"] = str(least)
    least_bps = min((capacities.get(link, UNKNOWN_CAPACITY_BPS) for link in there), default=UNKNOWN_CAPACITY_BPS)
    known_bps = least_bps if all(link in capacities for link in there) else None
    parameters = probe_costs.fitted(sensor.sensor, parameters, known_bps, _per_minute(mesh.budget_share, least_bps))
    cost = probe_costs.cost_of(sensor.sensor, parameters)
    takes: Counter[str] = Counter(dict.fromkeys(there, cost.probe_bytes))
    for link in back:
        takes[link] += cost.answer_bytes
    for link, size in takes.items():
        limit = _per_minute(mesh.budget_share, capacities.get(link, UNKNOWN_CAPACITY_BPS))
        if size > limit:
            words = f"a run of {sensor.sensor} takes {size} bytes of {link}, the mesh's budget is {limit} a minute"
            _remark(shown, words)
            return None
    return _Run(*ends, place, parameters, dict(takes))


def _remark(shown: MeshPlan, words: str) -> None:
    if words not in shown.remarks and len(shown.remarks) < MAX_REMARKS:
        shown.remarks.append(words)


def _configuration(mesh: SensingMesh, run: _Run, factor: float) -> SensingConfiguration:
    sensor = mesh.sensors[run.place]
    before = sum(1 for other in mesh.sensors[: run.place] if other.sensor == sensor.sensor)
    name = sensor.sensor + (f"-{before + 1}" if before else "")
    identity = f"{MESH_PREFIX}{mesh.id}:{name}:{run.source.id}:{run.destination.id}"
    if len(identity) > MAX_ID:
        digest = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
        identity = f"{MESH_PREFIX}{mesh.id}:{digest}"
    return SensingConfiguration(
        id=identity,
        source_node=run.source.id,
        destination_node=run.destination.id,
        destination_address=_address(run.destination),
        sensor=sensor.sensor,
        parameters=run.parameters,
        period_ms=min(MAX_PERIOD_MS, round(sensor.period_ms * factor)),
        priority=mesh.priority,
        owner=mesh.owner,
        mesh=mesh.id,
    )
