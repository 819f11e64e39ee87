"""The network and policy as they are now, from the streams; the network is made anew when something of it changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import cast

from chart.common import platform_settings
from chart.common.ownership import Ownership, Prefix, own_prefix
from chart.common.streams import Broker, CompactedState, StreamUnavailable
from chart.reservations.decisions.network import DEFAULT_OVERSUBSCRIPTION, Network, NetworkLink, network_of
from chart.reservations.decisions.next_hops import NodeRoutes, next_hops_of
from chart.reservations.decisions.path_tables import steered, steering
from chart.reservations.decisions.room import room_of
from chart.v1 import (
    estimate_pb2,
    node_state_pb2,
    path_table_pb2,
    platform_settings_pb2,
    policy_pb2,
    tenant_pb2,
    topology_pb2,
)

TOPOLOGY = "chart.topology.v1"
POLICY = "chart.policy.v1"
ESTIMATE = "chart.estimate.v1"
NODE_STATE = "chart.node-state.v1"
TENANT = "chart.tenant.v1"
PATH_TABLE = "chart.path-table.v1"
SETTINGS = platform_settings.TOPIC
TOPICS = (TOPOLOGY, POLICY, ESTIMATE, NODE_STATE, TENANT, SETTINGS, PATH_TABLE)
CAPACITY_METRIC = "capacity_bps"
# Agents that say one of these can draw on a lease.
IN_BAND_CAPABILITIES = frozenset({"signal", "in-band"})
# Changes come in bursts (a node has several links): they are looked at together.
SETTLE_S = 0.2
# A failure is passed over in the kernel before anybody here knows of it: the new table only has to come soon.
OVERLAY_SETTLE_S = 0.05


class NetworkView:
    """Topology, policy, measured capacities, the state of interfaces and the platform's settings.

    ``oversubscription``: what this process was started with.
    """

    def __init__(self, oversubscription: float = DEFAULT_OVERSUBSCRIPTION) -> None:
        self._states: dict[str, CompactedState] = {}
        self._network: Network | None = None
        self._ownership: Ownership | None = None
        self._oversubscription = oversubscription
        self._changed = asyncio.Event()
        self._prints: dict[tuple[str, str], object] = {}
        # What path tables are made of has changed, and what of it was seen last.
        self._overlay_changed = asyncio.Event()
        self._overlay_prints: dict[tuple[str, str], object] = {}
        # By node: what of its state the routes were read from, and these.
        self._known_routes: dict[str, tuple[object, NodeRoutes]] = {}
        # Each link with the most that it could commit in any network since the last that `changes` gave out.
        self._most: dict[str, NetworkLink] = {}

    async def open(self, broker: Broker) -> None:
        """Read the states to their ends.

        Raises:
            StreamUnavailable: one could not be read.
        """
        for topic in TOPICS:
            self._states[topic] = await broker.compacted(topic)

    @property
    def ready(self) -> bool:
        """Whether everything is held."""
        return len(self._states) == len(TOPICS) and all(state.ready for state in self._states.values())

    async def follow(self, topic: str) -> None:
        """Drop the built network whenever something changes in the topic that it is made of.

        Raises:
            StreamUnavailable: the state can no longer be followed.
        """
        async for key, value in self._states[topic].subscribe_changes(with_current=True):
            if topic == NODE_STATE and value is None:
                self._known_routes.pop(key, None)
            if topic == ESTIMATE and not key.endswith(f",{CAPACITY_METRIC}"):
                continue
            self._note_overlay(topic, key, value)
            seen = _print_of(value)
            if self._prints.get((topic, key)) == seen:
                continue
            self._prints[topic, key] = seen
            if topic == TENANT:
                self._ownership = None
                continue
            self._network = None
            self._changed.set()
        # The state ended under us: without it every decision would be about the past. The supervisor starts us anew.
        msg = f"the state of {topic} is no longer followed"
        raise StreamUnavailable(msg)

    async def changes(self) -> AsyncIterator[tuple[Network, Network]]:
        """The network before and after each change; the first time nothing came before.

        Of a link that had more in between, `before` has that: somebody may have been admitted by it.
        """
        known: Network | None = None
        while True:
            after = self.network
            if after is not known:
                before = (
                    Network({}, {})
                    if known is None
                    else Network(known.nodes, self._most, known.routes, steering=known.steering)
                )
                self._most = dict(after.links)
                yield before, after
                known = after
            await self._changed.wait()
            await asyncio.sleep(SETTLE_S)
            self._changed.clear()

    def _note_overlay(self, topic: str, key: str, value: object) -> None:
        if topic not in (TOPOLOGY, NODE_STATE):
            return
        seen = _overlay_print_of(value)
        if self._overlay_prints.get((topic, key)) != seen:
            self._overlay_prints[topic, key] = seen
            self._overlay_changed.set()

    async def overlay_changes(self) -> AsyncIterator[None]:
        """Now, and whenever something that path tables are made of has changed."""
        while True:
            self._overlay_changed.clear()
            yield
            await self._overlay_changed.wait()
            await asyncio.sleep(OVERLAY_SETTLE_S)

    @property
    def overlay_inputs(
        self,
    ) -> tuple[dict[str, topology_pb2.Node], list[topology_pb2.Link], dict[str, node_state_pb2.NodeState], int]:
        """Nodes, links, states of nodes, and the revision of the newest entity."""
        entities = [cast(topology_pb2.TopologyEntity, value) for _, value in self._states[TOPOLOGY].items()]
        nodes = {one.node.id: one.node for one in entities if one.WhichOneof("entity") == "node"}
        links = [one.link for one in entities if one.WhichOneof("entity") == "link"]
        newest = max((one.revision for one in entities), default=0)
        return nodes, links, {state.node: state for state in self._nodes()}, newest

    @property
    def path_tables(self) -> dict[str, path_table_pb2.PathTable]:
        """Those that were published last, by node."""
        return {key: cast(path_table_pb2.PathTable, value) for key, value in self._states[PATH_TABLE].items()}

    @property
    def platform(self) -> platform_settings_pb2.PlatformSettings:
        """What operators set for the whole platform; nothing before the streams are read."""
        state = self._states.get(SETTINGS)
        found = state.get(platform_settings.KEY) if state is not None else None
        return cast("platform_settings_pb2.PlatformSettings | None", found) or platform_settings_pb2.PlatformSettings()

    @property
    def _multiple(self) -> float:
        platform = self.platform
        return platform.oversubscription if platform.HasField("oversubscription") else self._oversubscription

    @property
    def network(self) -> Network:
        """The network of this moment."""
        if self._network is None:
            entities = cast("list[tuple[str, topology_pb2.TopologyEntity]]", self._states[TOPOLOGY].items())
            estimates = (
                cast(estimate_pb2.Estimate, value)
                for key, value in self._states[ESTIMATE].items()
                if key.endswith(f",{CAPACITY_METRIC}")
            )
            measured = {(one.source_node, one.destination_node): one.value for one in estimates if one.value > 0}
            down = {
                interface.link_id
                for state in self._nodes()
                for interface in state.interfaces
                if interface.link_id and not interface.up
            }
            rooms = {state.node: room_of(state) for state in self._nodes()}
            states = {state.node: state for state in self._nodes()}
            dead = frozenset(link for state in self._nodes() for link in _dead_links(state) or ())
            registered = self._registered() if self.path_tables else set()
            choices = {
                node: steering(table, states.get(node), dead, registered) for node, table in self.path_tables.items()
            }
            routes = self._routes(states, registered)
            self._network = network_of(entities, measured, down, self._multiple, routes, rooms, choices)
            for link_id, link in self._network.links.items():
                if link_id not in self._most or link.admissible_bps > self._most[link_id].admissible_bps:
                    self._most[link_id] = link
        return self._network

    @property
    def ownership(self) -> Ownership:
        """What belongs to which tenant at this moment."""
        network, known = self.network, self._ownership
        if known is not None and known.nodes is not network.nodes and known.nodes == network.nodes:
            # Made anew by a change of something else: compared once, not for every request.
            known.nodes = network.nodes
        if known is None or known.nodes is not network.nodes:
            tenants = (cast(tenant_pb2.Tenant, value) for _, value in self._states[TENANT].items())
            known = self._ownership = Ownership.of(tenants, network.nodes, network.prefixes_of)
        return known

    @property
    def in_band_nodes(self) -> set[str]:
        """Nodes whose agents grant in band."""
        return {state.node for state in self._nodes() if IN_BAND_CAPABILITIES.intersection(state.capabilities)}

    def max_guaranteed_bps(self, node: str) -> int:
        """Greatest guaranteed rate of one request from a node, by its own policy or the default one; 0: no bound."""
        for identity in (node, "default"):
            policy = cast("policy_pb2.Policy | None", self._states[POLICY].get(identity))
            if policy is not None and policy.HasField("max_guaranteed_bps"):
                return policy.max_guaranteed_bps
        return 0

    def _registered(self) -> set[Prefix]:
        """Everything that nodes state as their own."""
        entities = (cast(topology_pb2.TopologyEntity, value) for _, value in self._states[TOPOLOGY].items())
        stated = (own_prefix(text) for one in entities for text in one.node.addresses)
        return {prefix for prefix in stated if prefix is not None}

    def _routes(
        self, states: Mapping[str, node_state_pb2.NodeState], registered: Collection[Prefix]
    ) -> dict[str, NodeRoutes]:
        """Where nodes send packets; read again only of those that say something else."""
        found: dict[str, NodeRoutes] = {}
        for state in self._nodes():
            if not state.routes:
                continue
            seen = _routes_print(state)
            if state.node not in self._known_routes or self._known_routes[state.node][0] != seen:
                self._known_routes[state.node] = seen, next_hops_of(state)
            found[state.node] = self._known_routes[state.node][1]
        for node, table in self.path_tables.items():
            routes = steered(table, found.get(node, {}), states.get(node), registered)
            if routes:
                found[node] = routes
        return found

    def _nodes(self) -> list[node_state_pb2.NodeState]:
        return [cast(node_state_pb2.NodeState, value) for _, value in self._states[NODE_STATE].items()]


def _routes_print(state: node_state_pb2.NodeState) -> tuple[bytes, ...]:
    return tuple(one.SerializeToString(deterministic=True) for one in state.routes)


def _print_of(value: object) -> object:
    """What of a record the network is made of."""
    if isinstance(value, node_state_pb2.NodeState):
        interfaces = tuple(sorted((one.link_id, one.up) for one in value.interfaces))
        return interfaces, _routes_print(value), room_of(value), _dead_links(value)
    if isinstance(value, estimate_pb2.Estimate):
        return int(value.value)
    if isinstance(value, platform_settings_pb2.PlatformSettings):
        return value.oversubscription if value.HasField("oversubscription") else None
    return value


def _dead_links(state: node_state_pb2.NodeState) -> tuple[str, ...] | None:
    """Overlay links that do not answer; None: no overlay runs."""
    if not state.HasField("overlay"):
        return None
    return tuple(sorted(one.link_id for one in state.overlay.links if not one.alive))


def _overlay_print_of(value: object) -> object:
    """What of a record path tables are made of."""
    if isinstance(value, node_state_pb2.NodeState):
        ends = tuple(sorted((one.link_id, one.up, one.mtu, tuple(one.addresses)) for one in value.interfaces))
        return ends, _dead_links(value)
    return value
