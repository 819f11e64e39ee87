"""Meshes: who measures whom, how often. Pure functions of the mesh, the topology and which sensor pods report.

The CHART System, section 6: applications say what they want to know of a set of nodes, and the platform lays the
measurements out. Every member measures every other; of a mesh with more pairs than may be configured each member
measures as many others, and the inference fills the rest. What the probes and their answers would take of a link beyond
the mesh's budget lengthens the periods of all pairs that cross it. Where not all pairs can be measured as often as was
asked for, a part of the budget is for those whose measurement the inference expects to tell most.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chart.common import probe_costs
from chart.common.shortest_paths import Paths
from chart.registry.meshes import is_active
from chart.registry.service import MAX_PERIOD_MS, MESH_PREFIX
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from chart.v1.sensing_mesh_pb2 import MeshLink, MeshMember, MeshPlan, MeshSensor, SensingMesh
from chart.v1.topology_pb2 import Link, Node

MAX_CONFIGURATIONS = 20_000
# Of a link whose capacity nobody knows: the least that an access has.
UNKNOWN_CAPACITY_BPS = 1_000_000
MAX_REMARKS = 20
# Of configurations and of each link's budget: what pairs that inference chose may take where there is not room for all.
ACTIVE_SHARE = 0.2
MAX_ID = 128
# A period that has to grow takes the next of these: one node more or less shall not change every period.
_STEPS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12.5, 15, 20, 25, 30, 40, 50, 60, 80, 100)

# Place of the sensor in its mesh, source, destination.
_Key = tuple[int, str, str]


@dataclass
class Plan:
    """What a mesh comes to now."""

    configurations: dict[str, SensingConfiguration] = field(default_factory=dict)
    shown: MeshPlan = field(default_factory=MeshPlan)
    # Ids of the configurations of pairs that inference chose.
    chosen: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Wish:
    """A pair that inference wants measured, and the metric that it is for."""

    metric: str
    source: str
    destination: str


@dataclass(frozen=True)
class _Run:
    """One sensor of one pair, and what a minute of it takes of each link at the period that was asked for."""

    source: Node
    destination: Node
    place: int
    parameters: dict[str, str]
    bytes_of_run: dict[str, int]


def plan(
    mesh: SensingMesh,
    nodes: Iterable[Node],
    links: Sequence[Link],
    reporting: Collection[str],
    wishes: Sequence[Wish] = (),
) -> Plan:
    """Lay a mesh out; ``reporting`` are the nodes whose sensor pods are there, ``wishes`` the pairs that inference
    wants measured, the most useful first.
    """
    made = Plan(shown=MeshPlan(slowest=1.0))
    if not mesh.enabled:
        return made
    members = _members(mesh, nodes, reporting, made.shown)
    active = is_active(mesh)
    builder = _Runs(mesh, members, links, made.shown)
    runs: dict[_Key, _Run] = {}
    for source, destination in pairs(members, len(mesh.sensors), active=active):
        for place in range(len(mesh.sensors)):
            builder.add(runs, (place, source.id, destination.id))
    ahead = _ahead(builder, runs, wishes) if active else {}
    # What is kept free for chosen pairs does not follow from which are chosen, so that other periods stay as they are.
    share = 1 - ACTIVE_SHARE if ahead else 1.0
    load = builder.load(runs.values())
    planned: dict[str, float] = defaultdict(float)
    for key, run in {**runs, **ahead}.items():
        crowded = max(load[link] / (share * builder.limit(link)) for link in run.bytes_of_run)
        factor = 1.0 if key in ahead else step(crowded)
        configuration = _configuration(mesh, run, factor)
        made.configurations[configuration.id] = configuration
        if key in ahead:
            made.chosen.add(configuration.id)
        made.shown.slowest = max(made.shown.slowest, factor)
        for link, size in run.bytes_of_run.items():
            planned[link] += size * 60_000 / configuration.period_ms
    made.shown.configurations = len(made.configurations)
    made.shown.chosen = len(made.chosen)
    made.shown.links.extend(
        MeshLink(
            link_id=link,
            capacity_bps=builder.capacities.get(link, 0),
            planned_bytes=round(size),
            limit_bytes=builder.limit(link),
        )
        for link, size in sorted(planned.items())
    )
    return made


def in_turns(wishes: Mapping[str, Sequence[Wish]]) -> tuple[Wish, ...]:
    """The wishes of all metrics, one of each in turns, so that none waits for all of another."""
    lines = [wishes[metric] for metric in sorted(wishes)]
    longest = max((len(line) for line in lines), default=0)
    return tuple(line[at] for at in range(longest) for line in lines if at < len(line))


def _ahead(builder: _Runs, runs: Mapping[_Key, _Run], wishes: Sequence[Wish]) -> dict[_Key, _Run]:
    """Runs of wanted pairs that would not be made as often as was asked for, or not at all, as far as a share of the
    configurations and of each link's budget goes.
    """
    load = builder.load(runs.values())
    crowded = {link for link, size in load.items() if size > builder.limit(link)}
    room = max(0, MAX_CONFIGURATIONS - len(runs))
    ahead: dict[_Key, _Run] = {}
    spent: dict[str, float] = defaultdict(float)
    for wish in wishes:
        for place, sensor in enumerate(builder.mesh.sensors):
            key = (place, wish.source, wish.destination)
            known = runs.get(key)
            if probe_costs.MAIN_METRIC[sensor.sensor][0] != wish.metric or key in ahead:
                continue
            if known is not None and not crowded & known.bytes_of_run.keys():
                continue  # it is measured as often as was asked for
            run = known or (builder.make(key) if room else None)
            if run is None:
                continue
            takes = builder.load([run])
            if any(spent[link] + size > ACTIVE_SHARE * builder.limit(link) for link, size in takes.items()):
                continue
            room -= 1 if known is None else 0
            ahead[key] = run
            for link, size in takes.items():
                spent[link] += size
    return ahead


class _Runs:
    """Makes runs of a mesh's sensors between its members."""

    def __init__(self, mesh: SensingMesh, members: Sequence[Node], links: Sequence[Link], shown: MeshPlan) -> None:
        self.mesh = mesh
        self.capacities = {link.id: link.capacity_bps for link in links if link.capacity_bps}
        self._members = {node.id: node for node in members}
        self._routes = _routes(members, links)
        self._shown = shown

    def limit(self, link: str) -> int:
        """Bytes a minute that the mesh may take of a link."""
        return _per_minute(self.mesh.budget_share, self.capacities.get(link, UNKNOWN_CAPACITY_BPS))

    def load(self, runs: Iterable[_Run]) -> dict[str, float]:
        """Bytes a minute of each link at the periods that were asked for."""
        found: dict[str, float] = defaultdict(float)
        for run in runs:
            for link, size in run.bytes_of_run.items():
                found[link] += size * 60_000 / self.mesh.sensors[run.place].period_ms
        return found

    def make(self, key: _Key) -> _Run | None:
        """One sensor of one pair; None when an end is no member, or no minute's budget has room for a run."""
        place, source, destination = key
        first, second = self._members.get(source), self._members.get(destination)
        if first is None or second is None or first is second:
            return None
        paths = self._routes[source].links(destination), self._routes[destination].links(source)
        sensor = self.mesh.sensors[place]
        return _run(self.mesh, place, sensor, (first, second), paths, self.capacities, self._shown)

    def add(self, runs: dict[_Key, _Run], key: _Key) -> None:
        """Make a run and keep it if there is one."""
        run = self.make(key)
        if run is not None:
            runs[key] = run


def pairs(members: Sequence[Node], sensors: int, *, active: bool = False) -> list[tuple[Node, Node]]:
    """Who measures whom: everyone everyone, or each the same number of others when that would be too much.

    Then the members stand in a circle, in an order that does not change as others come and go, and each measures those
    that follow; of an active mesh a share of the configurations is left for pairs that are chosen.
    """
    count = len(members)
    room = MAX_CONFIGURATIONS
    if active and count * (count - 1) * sensors > MAX_CONFIGURATIONS:
        room = int((1 - ACTIVE_SHARE) * MAX_CONFIGURATIONS)
    most = min(count - 1, max(1, room // max(1, count * sensors))) if count > 1 else 0
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
